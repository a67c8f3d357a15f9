//! `quipu check metrics`: finds errors in an exposition. These are lines that no scraper can parse,
//! and metrics that violate Prometheus' conventions. `promlint` contains the nine rules of
//! Prometheus' `promtool check metrics`, and `metric` and `all` contain additional rules.

mod all;
mod findings;
mod metric;
mod promlint;
mod report;
mod units;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use clap::{Args, ValueEnum};
use quipu_segment::printable;
use quipu_wire::remote::exposition::text::{
    Item, Options, TextFormat, TextLineError, TextReader, TextReason, TextSample,
};
use quipu_wire::remote::exposition::{Families, Family, FamilyError, FamilyType, Limits};

use crate::output::{self, Error, announce_input, print};
use all::Names;
use findings::{Findings, Rule};
use quipu_client::Text;
use quipu_client::fetch::{fetch, with_path};
use quipu_process::size::Size;

/// Arguments of `quipu check metrics`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  quipu check metrics http://127.0.0.1:8081/metrics
  quipu check metrics http://127.0.0.1:9100
  app --print-metrics | quipu check metrics -

The exit code is 0 if nothing was found, 1 if a line or the input cannot be read, or a line was \
too long to be checked, and 3 if all lines can be read, but something was found.")]
pub struct Metrics {
    /// Exposition in Prometheus' text format or OpenMetrics: a file, a URL (http; the default path
    /// is /metrics), or - for standard input
    #[arg(value_name = "FILE|URL|-")]
    source: OsString,

    /// Format of the exposition, instead of what the Content-Type or its lines say
    #[arg(long, value_enum, value_name = "FORMAT")]
    read_as: Option<InputFormat>,

    /// How many series a family may have
    #[arg(long, value_name = "N", default_value = "1000")]
    max_series: Size<usize>,

    /// A rule that is not applied, by its name; can be given several times
    #[arg(long, value_enum, value_name = "RULE")]
    ignore: Vec<Rule>,

    /// Format to write to standard output
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    format: output::OutputFormat,
}

/// A format of the exposition that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InputFormat {
    /// Prometheus' text format
    Text,
    /// OpenMetrics 1.0
    Openmetrics,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The check found no error.
    Sound,
    /// Some lines were unreadable, or too long to be checked.
    Unreadable,
    /// The check found an error, or a long line whose rule is ignored.
    Found,
}

impl Outcome {
    /// Returns the exit code of the process, like `promtool check metrics`.
    pub fn code(self) -> u8 {
        match self {
            Self::Sound => 0,
            Self::Unreadable => 1,
            Self::Found => 3,
        }
    }
}

/// The maximum size of an exposition in bytes.
const MAX_BYTES: u64 = 256 << 20;
/// The maximum length of a line to check, in bytes.
const MAX_LINE: usize = 1 << 20;
/// The maximum number of labels of a series to check.
const MAX_LABELS: usize = 64;
/// The time limit for a server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Checks an exposition, and writes the findings.
///
/// # Errors
/// Fails if the input is unreadable, or if the output cannot be written.
pub fn run(arguments: &Metrics) -> Result<Outcome, Error> {
    let mut text = read(&arguments.source)
        .map_err(|error| Error::new(format_args!("{}: {error}", printable(&arguments.source))))?;
    if let Some(format) = arguments.read_as {
        text.format = match format {
            InputFormat::Text => TextFormat::Prometheus,
            InputFormat::Openmetrics => TextFormat::OpenMetrics,
        };
    }
    let findings = check(&text, arguments.max_series.0, &arguments.ignore);
    let written = print(|out| report::write(&findings, arguments.format, out));
    written.map(|_| findings.outcome())
}

fn read(source: &OsStr) -> Result<Text, String> {
    let name = source.to_str().unwrap_or_default();
    if name.starts_with("http://") || name.starts_with("https://") {
        return fetch(&with_path(name), TIMEOUT);
    }
    let mut bytes = Vec::new();
    let read = match name {
        "-" => {
            announce_input();
            io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes)
        }
        _ => File::open(source).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes)),
    };
    read.map_err(|error| error.to_string())?;
    match bytes.len() as u64 > MAX_BYTES {
        true => Err(format!("it has more than {} MiB", MAX_BYTES >> 20)),
        false => Ok(Text::of_bytes(bytes)),
    }
}

/// Finds the errors of an exposition.
fn check(text: &Text, max_series: usize, ignored: &[Rule]) -> Findings {
    let mut lint = Lint {
        format: text.format,
        max_series,
        findings: Findings::new(ignored),
        names: Names::default(),
        line: None,
        reached: (1, 0),
    };
    if text.content_type.as_ref().is_some_and(String::is_empty) {
        let message = "the response has no Content-Type, without which Prometheus 3 refuses it";
        lint.findings.add("", Rule::ContentType, message, None);
    }
    let options = Options::new(text.format).max_line(MAX_LINE).max_labels(MAX_LABELS);
    let mut reader = TextReader::new(&text.bytes, options);
    let mut families = Families::new(text.format, Limits::default());
    while let Some(item) = reader.next() {
        match item {
            Ok(item) => lint.item(&mut families, &item),
            Err(error) => lint.fault(&error, &text.bytes),
        }
    }
    families.finish(|family| lint.family(family));
    lint.names.finish(&mut lint.findings);
    lint.findings
}

/// A check in progress.
struct Lint {
    format: TextFormat,
    max_series: usize,
    findings: Findings,
    names: Names,
    /// The line of the current family's first sample.
    line: Option<u64>,
    /// The number and the position of the last line whose name was looked up.
    reached: (u64, usize),
}

impl Lint {
    /// Adds a line that is unreadable, or that was not checked.
    fn fault(&mut self, error: &TextLineError, text: &[u8]) {
        match error.reason() {
            TextReason::TooLong => {
                let message = format!("the line has more than {} MiB", MAX_LINE >> 20);
                self.findings.unchecked("", Rule::LineLong, &message, error.line());
            }
            TextReason::TooManyLabels => {
                let message =
                    format!("the series or its exemplar has more than {MAX_LABELS} labels");
                let name = self.name_of_line(error.line(), text);
                self.findings.unchecked(&name, Rule::LabelsMany, &message, error.line());
            }
            _ => self.findings.unreadable(error),
        }
    }

    /// Returns the metric name in a line of samples. The line numbers of successive calls must
    /// increase.
    fn name_of_line(&mut self, number: u64, text: &[u8]) -> String {
        let (at, begin) = &mut self.reached;
        let mut rest = text.get(*begin..).unwrap_or_default();
        while *at < number {
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { break };
            (*at, *begin, rest) = (*at + 1, *begin + end + 1, &rest[end + 1..]);
        }
        let line = rest.trim_ascii_start();
        // A quoted name is the first part in the braces.
        let quoted = line.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
        let (name, end) = match quoted.and_then(|quoted| quoted.strip_prefix(b"\"")) {
            Some(name) => (name, b'"'),
            None => (line, b'{'),
        };
        let name = name.split(|byte| *byte == end).next().unwrap_or_default();
        String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
    }

    fn item(&mut self, families: &mut Families, item: &Item<'_, '_>) {
        match item {
            Item::Help { name, .. } => self.names.has_help(&name.to_cow()),
            Item::Type { name, .. } => self.names.has_type(&name.to_cow()),
            _ => {}
        }
        let pushed = families.push(item, |family| self.family(family));
        let (name, line) = match item {
            Item::Help { name, .. } | Item::Type { name, .. } | Item::Unit { name, .. } => {
                (name.to_cow(), None)
            }
            Item::Sample(sample) => {
                self.line.get_or_insert(sample.line);
                self.sample(sample);
                (sample.name.to_cow(), Some(sample.line))
            }
            _ => return,
        };
        let Err(error) = pushed else { return };
        let (rule, message) = match (error, line) {
            (FamilyError::Duplicate, Some(_)) => (Rule::Duplicate, "metric not unique".to_owned()),
            (FamilyError::MalformedBound, _) => (Rule::Bound, error.to_string()),
            (FamilyError::TooLarge, _) => {
                (Rule::Cardinality, format!("{error}: its other series were not checked"))
            }
            _ => (Rule::Misplaced, error.to_string()),
        };
        self.findings.add(&name, rule, message, line);
    }

    /// Checks the labels and the timestamp of a sample's line.
    fn sample(&mut self, sample: &TextSample<'_, '_>) {
        let name = || sample.name.to_cow();
        for label in sample.labels {
            let value = label.value.to_cow();
            let finding = if value.is_empty() {
                Some((Rule::LabelEmpty, "a label with an empty value is as good as none"))
            } else if value.len() > MAX_VALUE {
                Some((Rule::LabelLong, "a value of a label has more than 256 bytes"))
            } else if value.contains(|c: char| c.is_control() && c != '\n') {
                Some((Rule::Control, "a value of a label has control characters"))
            } else {
                None
            };
            if let Some((rule, message)) = finding {
                let message = format!("{message}: {}", printable(&*label.name.to_cow()));
                self.findings.add(&name(), rule, message, Some(sample.line));
            }
        }
        if sample.timestamp_ms.is_some() {
            let message =
                "samples should not have timestamps: Prometheus never marks them as stale";
            self.findings.add(&name(), Rule::Timestamp, message, Some(sample.line));
        }
    }

    /// Checks a complete family.
    fn family(&mut self, family: Family<'_>) {
        let line = self.line.take();
        // We add the suffix, because the family names of OpenMetrics lack it.
        let suffix = match (self.format, family.kind()) {
            (TextFormat::OpenMetrics, FamilyType::Counter) => "_total",
            (TextFormat::OpenMetrics, FamilyType::Info) => "_info",
            _ => "",
        };
        let name = format!("{}{suffix}", family.name());
        let (has_help, has_type) = self.names.described(family.name());
        let mut add = |rule, message: &str| self.findings.add(&name, rule, message, line);
        if !has_help {
            add(Rule::Help, "no help text");
        }
        if !has_type {
            add(Rule::Type, "no type: add a line `# TYPE` before its samples");
        }
        promlint::check(&name, family, &mut add);
        metric::check(&name, family, self.max_series, &mut |rule, message| {
            self.findings.add(&name, rule, message, line);
        });
        self.names.add(&name, family, self.format, line, &mut self.findings);
    }
}

/// The recommended maximum length of a label value in bytes.
const MAX_VALUE: usize = 256;

#[cfg(test)]
mod tests;
