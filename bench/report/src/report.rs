//! Generates `docs/benchmarks/NAME.md` and its plots from the records and a template, and compares
//! the pages of a checkout with the generated ones.
//!
//! A template is `bench/reports/NAME.md`: Markdown with placeholders, which can be anywhere in a
//! line, for example `{{value counter/add}}`. Quote a word that contains spaces. In the name of a
//! case, `*` matches any characters.
//!
//! | placeholder | becomes |
//! |---|---|
//! | `{{machine}}` | a table of the machine, the tools and the command |
//! | `{{with NAME... prefix="P"}}` | nothing; it adds the records of other benchmarks |
//! | `{{processor NAME}}` | the processor of a benchmark, and the cost of a locked addition |
//! | `{{beside CASE subject=S peer="P" threads=N metric=M}}` | three cells, see below |
//! | `{{pair CASE unit=U subject=S peer="P" threads=N metric=M}}` | three cells, see below |
//! | `{{glance CASE subject=S threads=N metric=M}}` | six cells, see below |
//! | `{{text FILE}}` | a text file of the folder, as a block of code |
//! | `{{counts NAME}}` | a table of `arena-counts.jsonl`, by its name in [`counts::table`] |
//! | `{{hottest table}}`, `{{hottest tools}}` | the counts of `hottest.jsonl`, and the tools |
//! | `{{table CASE... peer="P" metric=M by=B}}` | a table of the cases, with ratios to the peer |
//! | `{{versus CASE... metric=M}}` | a table of the cases that compares `quipu:NAME` to `go:NAME` |
//! | `{{plot CASE... file=F.svg title="T" metric=M bars=N}}` | bars of the cases, best first |
//! | `{{scatter CASE CASE file=F.svg title="T" along="X" up="Y"}}` | points: a case along, one up |
//! | `{{lines CASE... along="X" up="Y" file=F.svg title="T" metric=M}}` | lines over the amounts |
//! | `{{steps CASE... metric=M}}` | a table of how steep these lines are |
//! | `{{ratio CASE subject=S peer="P" threads=N metric=M}}` | how many times better, as `12.1x` |
//! | `{{value CASE subject=S threads=N metric=M}}` | a median, as `4.70 ns` |
//! | `{{goal CASE at_most="2.5 ns" subject=S peer=P threads=N metric=M}}` | four cells, see below |
//!
//! If a peer is better than the best of our figures, this figure is marked as lost. Below a table,
//! the page names the processor and the cost of a locked addition, because this cost differs by a
//! factor of three between processors.
//!
//! Options and their defaults:
//!
//! - `peer` of a table: by default, there are no ratios.
//! - `threads`: 1. For `plot`, the default is all; you can list several numbers, separated by
//!   commas.
//! - `metric`: any metric; `plot`, `ratio` and `value` require that there is only one. You can pass
//!   several metrics to a table, separated by commas.
//! - `subject`: quipu. The subject or the peer `best` is the best of all foreign ones; its value
//!   includes its name.
//! - `by`: a row of a table is a case; with `by=subject` it is a subject.
//! - `bars`: the maximum number of bars of a case; by default, a plot has about 12 bars.
//! - `along` and `up`: the titles of the axes; by default, `up` is the metric.
//! - `only=S`, for all but `versus`: restricts the subjects to a list separated by commas. There,
//!   `*` matches any characters.
//!
//! `bench/reports/readme.md` fills the parts of README.md between `<!-- figures NAME -->` and `<!--
//! end -->`: it contains the same parts, with placeholders. `arena-readme.md` does the same for the
//! README of the arena.
//!
//! A prefix is put before the cases of the added records, because two benchmarks can use the same
//! names.
//!
//! The cells of `pair` are the medians of the subject and of the peer, without their unit, and the
//! name of the peer. All rows of a table use the same unit.
//!
//! `beside` fills these cells: how many times better the subject is than the peer, which is the
//! best one unless you name it; the median of the subject; the median of the peer, with its name.
//! `glance` fills the same cells, and then again for the case with the prefix `lto/`, or `-` if
//! this case was not measured.
//!
//! The cells of a goal are its bound, the median, whether the goal is reached, and the peer's
//! median. Pass either `at_most` or `at_least` to a goal. You can use `*` in its subject and its
//! peer; the first match is used.

mod axis;
pub mod format;
mod goal;
mod lines;
mod plot;
mod scatter;
mod sections;
mod svg;
mod table;
mod template;
mod versus;

use std::fs;
use std::path::{Path, PathBuf};

use crate::counts::figures::Figures;
use crate::counts::hottest::Hottest;
use crate::machine::Machine;
use crate::record::{self, Record};
use crate::{Error, Result, counts, output};
use goal::Bound;
use template::{Part, Placeholder};

/// A report: its template, its records, and its folder.
pub struct Report {
    name: String,
    template: PathBuf,
    folder: PathBuf,
}

impl Report {
    /// Returns the report of a benchmark of this checkout.
    pub fn of(name: &str) -> Report {
        let template = texts().join(format!("{name}.md"));
        Report { name: name.into(), template, folder: output::default_folder() }
    }

    /// Returns all reports of this checkout, by name.
    pub fn all() -> Result<Vec<Report>> {
        let mut texts = files(&texts(), &["md"])?;
        texts.sort();
        let names = texts.iter().filter_map(|path| path.file_stem()?.to_str());
        Ok(names.map(Report::of).collect())
    }

    /// Reads the records from another folder, and writes the report there.
    pub fn folder(self, folder: &Path) -> Report {
        Report { folder: folder.into(), ..self }
    }

    /// Uses another template.
    pub fn template(self, template: &Path) -> Report {
        Report { template: template.into(), ..self }
    }

    /// Returns the name of the report, for errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes the report and its plots, and returns the paths of the files that it wrote.
    pub fn write(&self) -> Result<Vec<PathBuf>> {
        let files = self.render()?;
        for (path, text) in &files {
            fs::write(path, text).map_err(Error::file("write", path))?;
        }
        Ok(files.into_iter().map(|(path, _)| path).collect())
    }

    /// Generates the report and its plots: the paths and the contents of the files. A table without
    /// rows is an error.
    pub fn render(&self) -> Result<Vec<(PathBuf, String)>> {
        let place = self.template.display().to_string();
        let text =
            fs::read_to_string(&self.template).map_err(Error::file("read", &self.template))?;
        let parts = template::parse(&place, &text)?;
        let source = Source::read(&self.folder, &self.name, &parts)?;

        let mut files = Vec::new();
        let mut report = String::new();
        for part in &parts {
            match part {
                Part::Text(text) => report.push_str(text),
                Part::Placeholder(placeholder) => {
                    let filled = source.fill(placeholder).map_err(|error| {
                        Error::line(&place, placeholder.line, error.to_string())
                    })?;
                    report.push_str(&filled.text);
                    files.extend(filled.file.map(|(name, text)| (self.folder.join(name), text)));
                }
            }
        }
        if let Some(line) = table::first_empty(&report) {
            return Err(Error::report(format!("a table has no rows: {line}")));
        }
        if let Some((_, readme)) = READMES.iter().find(|(name, _)| *name == self.name) {
            let path = crate::root().join(readme);
            let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
            let text = sections::replace(readme, &text, &report)?;
            files.push((path, text));
        } else {
            let name = &self.name;
            let has_records = output::records_path(&self.folder, name).exists();
            let records = if has_records { format!("{name}.jsonl and ") } else { String::new() };
            let head = format!(
                "<!-- Generated by `make pages` from {records}bench/reports/{name}.md. -->\n\n"
            );
            files.push((self.folder.join(format!("{}.md", self.name)), head + &report));
        }
        Ok(files)
    }
}

/// Compares all pages and plots of this checkout with the generated ones. Returns the files that
/// differ, and the pages and plots that no report generates.
pub fn stale() -> Result<Vec<PathBuf>> {
    let mut stale = Vec::new();
    let mut generated = Vec::new();
    for report in Report::all()? {
        let files = report
            .render()
            .map_err(|error| Error::report(format!("the report {}: {error}", report.name())))?;
        for (path, text) in files {
            if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                stale.push(path.clone());
            }
            generated.push(path);
        }
    }
    let folder = output::default_folder();
    // The list of the pages is written by hand.
    generated.push(folder.join("index.md"));
    let kept = files(&folder, &["md", "svg"])?;
    stale.extend(kept.into_iter().filter(|path| !generated.contains(path)));
    Ok(stale)
}

/// Returns the folder of the templates.
fn texts() -> PathBuf {
    crate::root().join("bench/reports")
}

/// Returns the files of a folder with one of these extensions.
fn files(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(Error::file("read", folder))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(Error::file("read", folder))?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| extensions.contains(&extension)) {
            files.push(path);
        }
    }
    Ok(files)
}

/// The reports that fill parts of a handwritten file, and use the figures of other benchmarks.
const READMES: [(&str, &str); 2] =
    [("readme", "README.md"), ("arena-readme", "crates/arena/README.md")];

/// The name for the best of all foreign subjects.
const BEST: &str = "best";

/// The prefix of the cases with link-time optimisation.
const LTO: &str = "lto/";

/// Returns the best foreign record of one case and metric.
fn best<'a>(records: &[&'a Record]) -> Option<&'a Record> {
    best_of(records.iter().copied().filter(|record| !record.is_ours()))
}

/// Returns our best record of one case and metric.
fn our_best<'a>(records: &[&'a Record]) -> Option<&'a Record> {
    best_of(records.iter().copied().filter(|record| record.is_ours()))
}

fn best_of<'a>(records: impl Iterator<Item = &'a Record>) -> Option<&'a Record> {
    records.min_by(|a, b| {
        let order = a.median.total_cmp(&b.median);
        if a.higher_is_better() { order.reverse() } else { order }
    })
}

/// The records that fill the placeholders.
struct Source {
    /// The name of the report.
    name: String,
    folder: PathBuf,
    records: Vec<Record>,
    /// The machine of the report's own benchmark.
    machine: Option<Machine>,
}

/// The replacement of a placeholder: a string, and possibly a file with a name and content.
struct Filled {
    text: String,
    file: Option<(String, String)>,
}

impl Source {
    /// Reads the records of a benchmark, if there are any, and the records that its template adds.
    /// All must be of the same machine, because their figures are compared.
    fn read(folder: &Path, own: &str, parts: &[Part]) -> Result<Source> {
        let read = |name: &str| -> Result<(Machine, Vec<Record>)> {
            let machine = Machine::read(&output::machine_path(folder, name))?;
            Ok((machine, record::read(&output::records_path(folder, name))?))
        };
        let (machine, mut records) = if output::machine_path(folder, own).exists() {
            let (machine, records) = read(own)?;
            (Some(machine), records)
        } else {
            (None, Vec::new())
        };
        for part in parts {
            let Part::Placeholder(placeholder) = part else { continue };
            for other in placeholder.words.iter().filter(|_| placeholder.word == "with") {
                let (theirs, added) = read(other)?;
                if let Some(machine) = &machine
                    && (&theirs.cpu, theirs.cores) != (&machine.cpu, machine.cores)
                {
                    let problem = format!("{other} was measured on another machine");
                    return Err(Error::report(problem));
                }
                let prefix = placeholder.option("prefix").unwrap_or_default();
                records.extend(added.into_iter().map(|mut record| {
                    record.case.insert_str(0, prefix);
                    record
                }));
            }
        }
        Ok(Source { name: own.into(), folder: folder.into(), records, machine })
    }

    fn fill(&self, placeholder: &Placeholder) -> Result<Filled> {
        let text = match placeholder.word.as_str() {
            "machine" => {
                placeholder.expect(0, &[])?;
                self.machine_table()?
            }
            "with" => {
                placeholder.expect(1, &["prefix"])?;
                String::new()
            }
            "processor" => {
                placeholder.expect(1, &[])?;
                let name = &placeholder.words[0];
                Machine::read(&output::machine_path(&self.folder, name))?.processor()
            }
            "text" => {
                placeholder.expect(1, &[])?;
                self.text(&placeholder.words.join(" "))?
            }
            "counts" => {
                placeholder.expect(1, &[])?;
                let name = &placeholder.words[0];
                let figures = Figures::read(&counts::arena_path(&self.folder))?;
                let unknown = || Error::report(format!("no table of counts is named {name}"));
                counts::table::render(&figures, name).ok_or_else(unknown)?
            }
            "hottest" => {
                placeholder.expect(1, &[])?;
                let hottest = Hottest::read(&counts::hottest_path(&self.folder))?;
                match placeholder.words[0].as_str() {
                    "table" => hottest.table(),
                    "tools" => hottest.tools(),
                    other => return Err(Error::report(format!("hottest has no part {other}"))),
                }
            }
            "table" => {
                placeholder.expect(1, &["peer", "metric", "by", "only"])?;
                let rows = match placeholder.option("by") {
                    None | Some("case") => table::Rows::Cases,
                    Some("subject") => table::Rows::Subjects,
                    Some(other) => {
                        return Err(Error::report(format!("by={other} is not case or subject")));
                    }
                };
                let peer = placeholder.option("peer");
                table::render(&self.select(placeholder)?, peer, rows)? + &self.processor()
            }
            "versus" => {
                placeholder.expect(1, &["metric"])?;
                versus::render(&self.select(placeholder)?, "quipu:", "go:")? + &self.processor()
            }
            "steps" => {
                placeholder.expect(1, &["metric", "only"])?;
                lines::steps(&self.select(placeholder)?)?
            }
            "plot" | "scatter" | "lines" => return self.plot(placeholder),
            "ratio" => {
                placeholder.expect(1, &["subject", "peer", "threads", "metric", "only"])?;
                let ours = self.one(placeholder, placeholder.option("subject"))?;
                let theirs = self.one(placeholder, Some(placeholder.required("peer")?))?;
                let ratio = ours.times_better_than(theirs).ok_or_else(|| {
                    Error::report(format!("{} of {}: one of them is zero", ours.metric, ours.case))
                })?;
                format::ratio(ratio)
            }
            "value" => {
                placeholder.expect(1, &["subject", "threads", "metric", "only"])?;
                let record = self.one(placeholder, placeholder.option("subject"))?;
                let value = format::quantity(record.median, &record.unit);
                match placeholder.option("subject") {
                    Some(BEST) => format!("{value} ({})", record.subject),
                    _ => value,
                }
            }
            "goal" => self.goal(placeholder)?,
            "beside" => {
                placeholder.expect(1, &["subject", "peer", "threads", "metric", "only"])?;
                self.beside(placeholder)?
            }
            "pair" => {
                let options = ["subject", "peer", "threads", "metric", "only", "unit"];
                placeholder.expect(1, &options)?;
                self.pair(placeholder)?
            }
            "glance" => {
                placeholder.expect(1, &["subject", "threads", "metric", "only"])?;
                self.glance(placeholder)?
            }
            other => {
                return Err(Error::report(format!(
                    "no placeholder is named {other}; there are machine, with, processor, \
                     text, counts, hottest, table, versus, plot, scatter, lines, steps, ratio, value, beside, \
                     pair, glance, goal"
                )));
            }
        };
        Ok(Filled { text, file: None })
    }

    fn plot(&self, placeholder: &Placeholder) -> Result<Filled> {
        let options = ["file", "title", "metric", "only", "along", "up", "bars", "threads"];
        placeholder.expect(1, &options)?;
        let (file, title) = (placeholder.required("file")?, placeholder.required("title")?);
        if file.contains('/') || !file.ends_with(".svg") {
            return Err(Error::report(format!("file={file} must be a name that ends with .svg")));
        }
        let mut selected = self.select(placeholder)?;
        if let Some(threads) = placeholder.option("threads") {
            selected.retain(|r| threads.split(',').any(|count| count == r.threads.to_string()));
        }
        let svg = match (placeholder.word.as_str(), &placeholder.words[..]) {
            ("scatter", [x, y]) => {
                let of = |case: &str| -> Vec<&Record> {
                    selected.iter().copied().filter(|record| record.case == case).collect()
                };
                {
                    let titles = (placeholder.required("along")?, placeholder.required("up")?);
                    scatter::render(title, titles, &of(x), &of(y))?
                }
            }
            ("lines", _) => {
                let along = placeholder.required("along")?;
                lines::render(title, along, placeholder.option("up"), &selected)?
            }
            ("scatter", _) => return Err(Error::report("a scatter needs two cases")),
            _ => {
                let bars = placeholder.option("bars").map(|bars| {
                    let problem = |_| Error::report(format!("bars={bars} is not a number"));
                    bars.parse().map_err(problem)
                });
                plot::render(title, placeholder.option("up"), &selected, bars.transpose()?)?
            }
        };
        // The parts of a README are not in the folder of the pictures.
        let folder = match READMES.iter().any(|(name, _)| *name == self.name) {
            true => "docs/benchmarks/",
            false => "",
        };
        Ok(Filled { text: format!("![{title}]({folder}{file})"), file: Some((file.into(), svg)) })
    }

    /// Returns the records of the placeholder's cases and metric, or an error if there are none.
    fn select(&self, placeholder: &Placeholder) -> Result<Vec<&Record>> {
        let metric = placeholder.option("metric");
        let only = placeholder.option("only");
        let mut selected = Vec::new();
        for pattern in &placeholder.words {
            let before = selected.len();
            selected.extend(self.records.iter().filter(|record| {
                template::matches(pattern, &record.case)
                    && metric.is_none_or(|metrics| metrics.split(',').any(|m| m == record.metric))
                    && only.is_none_or(|subjects| {
                        subjects.split(',').any(|s| template::matches(s, &record.subject))
                    })
            }));
            if selected.len() == before {
                let metric = metric.unwrap_or("any metric");
                return Err(Error::report(format!("no record has the case {pattern} ({metric})")));
            }
        }
        Ok(selected)
    }

    fn goal(&self, placeholder: &Placeholder) -> Result<String> {
        let options = ["subject", "peer", "threads", "metric", "at_most", "at_least"];
        placeholder.expect(1, &options)?;
        let bound = Bound::new(placeholder.option("at_most"), placeholder.option("at_least"))?;
        let threads = placeholder.option("threads").unwrap_or("1");
        let metric = placeholder.option("metric");
        let first = |subject: &str| {
            self.records.iter().find(|record| {
                placeholder.words.iter().any(|pattern| template::matches(pattern, &record.case))
                    && template::matches(subject, &record.subject)
                    && record.threads.to_string() == threads
                    && metric.is_none_or(|metric| metric == record.metric)
            })
        };
        let ours = first(placeholder.option("subject").unwrap_or("quipu"));
        bound.cells(ours, placeholder.option("peer").and_then(first))
    }

    /// Compares a subject to a peer.
    fn beside(&self, placeholder: &Placeholder) -> Result<String> {
        let ours = self.one(placeholder, placeholder.option("subject"))?;
        let theirs = self.one(placeholder, Some(placeholder.option("peer").unwrap_or(BEST)))?;
        let ratio = ours.times_better_than(theirs).map(format::verdict).unwrap_or_default();
        let value = |record: &Record| format::quantity(record.median, &record.unit);
        Ok(format!("{ratio} | {} | {} ({})", value(ours), value(theirs), theirs.subject))
    }

    /// Renders the medians of a subject and of a peer, in the unit of the table.
    fn pair(&self, placeholder: &Placeholder) -> Result<String> {
        let unit = placeholder.required("unit")?;
        let ours = self.one(placeholder, placeholder.option("subject"))?;
        let theirs = self.one(placeholder, Some(placeholder.option("peer").unwrap_or(BEST)))?;
        if let Some(other) = [ours, theirs].iter().find(|record| record.unit != unit) {
            let problem = format!("the unit of {} is {}, not {unit}", other.case, other.unit);
            return Err(Error::report(problem));
        }
        let value = |record: &Record| format::number(record.median);
        Ok(format!("{} | {} | {}", value(ours), value(theirs), theirs.subject))
    }

    /// Compares a subject to the best peer, in both profiles.
    fn glance(&self, placeholder: &Placeholder) -> Result<String> {
        let with_lto = placeholder.with_prefix(LTO);
        let measured = self.records.iter().any(|record| with_lto.words.contains(&record.case));
        let with_lto = if measured { self.beside(&with_lto)? } else { "- | - | -".into() };
        Ok(format!("{} | {with_lto}", self.beside(placeholder)?))
    }

    /// Returns the only record of the placeholder's case, threads and metric for a subject.
    fn one(&self, placeholder: &Placeholder, subject: Option<&str>) -> Result<&Record> {
        let subject = subject.unwrap_or("quipu");
        let threads = match placeholder.option("threads") {
            None => 1,
            Some(text) => text
                .parse()
                .map_err(|_| Error::report(format!("threads={text} is not a number")))?,
        };
        let found: Vec<&Record> = self
            .select(placeholder)?
            .into_iter()
            .filter(|record| record.threads == threads)
            .filter(|record| {
                template::matches(subject, &record.subject)
                    || (subject == BEST && !record.is_ours())
            })
            .collect();
        if subject == BEST
            && found.iter().all(|record| record.metric == found[0].metric)
            && let Some(best) = best(&found)
        {
            return Ok(best);
        }
        match found[..] {
            [record] => Ok(record),
            _ => Err(Error::report(format!(
                "{} records instead of 1 have the case {} and threads={threads} for {subject}",
                found.len(),
                placeholder.words.join(" "),
            ))),
        }
    }

    fn text(&self, file: &str) -> Result<String> {
        let path = self.folder.join(file);
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        Ok(format!("```text\n{}\n```", text.trim_end()))
    }

    /// Renders the line below a table that names the processor of the report's own benchmark.
    fn processor(&self) -> String {
        let machine = self.machine.as_ref();
        machine.map(|machine| format!("\n{}.", machine.processor())).unwrap_or_default()
    }

    fn machine_table(&self) -> Result<String> {
        let none = || Error::report("the report has no benchmark of its own");
        let mut text = "| | |\n| --- | --- |".to_string();
        for (name, value) in self.machine.as_ref().ok_or_else(none)?.rows() {
            text.push_str(&format!("\n| {name} | {} |", table::escape(&value)));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Label;

    const PEER: &str = "derlaft/ratecounter counter (equivalent)";

    fn report(template: &str) -> Result<(String, Vec<PathBuf>, tempfile::TempDir)> {
        let dir = tempfile::tempdir().unwrap();
        let time = |subject: &str, threads, values: &[f64]| {
            Label::new("bucketed/add", subject, "time", "ns").threads(threads).of(values)
        };
        let records = [
            time("quipu", 1, &[4.5, 4.7, 4.9]),
            time("quipu", 2, &[2.3, 2.4, 2.5]),
            time(PEER, 1, &[56.0, 56.6, 58.0]),
            time(PEER, 2, &[61.0, 62.0, 63.0]),
        ];
        record::append(&output::records_path(dir.path(), "rates"), &records).unwrap();
        Machine::collect().write(&output::machine_path(dir.path(), "rates")).unwrap();
        let path = dir.path().join("template.md");
        fs::write(&path, template).unwrap();
        let paths = Report::of("rates").folder(dir.path()).template(&path).write()?;
        Ok((fs::read_to_string(dir.path().join("rates.md")).unwrap(), paths, dir))
    }

    #[test]
    fn fills_every_placeholder() {
        let (text, paths, _dir) = report(&format!(
            "# Rates\n\n{{{{machine}}}}\n\n{{{{table bucketed/* peer=\"{PEER}\"}}}}\n\n\
             {{{{plot bucketed/* file=a.svg title=\"Time to add\"}}}}\n\nIt is \
             {{{{ratio bucketed/add peer=\"{PEER}\" threads=2}}}} at {{{{value bucketed/add}}}}.\n"
        ))
        .unwrap();
        assert!(text.starts_with("<!-- Generated by `make pages`"), "{text}");
        assert!(text.contains("# Rates\n\n| | |\n"), "{text}");
        assert!(text.contains("**4.70 ns** 12.0x<br><sub>4.50 to 4.90</sub>"), "{text}");
        assert!(text.contains("![Time to add](a.svg)"), "{text}");
        assert!(text.ends_with("It is 25.8x at 4.70 ns.\n"), "{text}");
        assert_eq!(paths.len(), 2);
        assert!(fs::read_to_string(&paths[0]).unwrap().starts_with("<svg"));
    }

    #[test]
    fn the_best_peer_is_found() {
        let (text, ..) = report(
            "{{value bucketed/add subject=best threads=2}}, {{ratio bucketed/add peer=best}}\n\n\
             {{table bucketed/add peer=best by=subject}}\n",
        )
        .unwrap();
        assert!(text.contains(&format!("62.0 ns ({PEER}), 12.0x\n")), "{text}");
        assert!(text.contains("| quipu | **4.70 ns** 12.0x<br>"), "{text}");
        assert!(text.contains(&format!("| {PEER} | *56.6 ns*<br>")), "{text}");
    }

    #[test]
    fn records_and_texts_of_other_files_count() {
        let (_, _, dir) = report("").unwrap();
        let record = Label::new("seed/fixed", "quipu", "time", "ns").of(&[5.0]);
        record::append(&output::records_path(dir.path(), "seed"), &[record]).unwrap();
        fs::write(dir.path().join("seed.txt"), "a table\n\n").unwrap();
        let template = dir.path().join("template.md");
        fs::write(&template, "{{with seed}}{{value seed/fixed}} {{text seed.txt}}").unwrap();
        let write = || Report::of("rates").folder(dir.path()).template(&template).write();
        let mut machine = Machine::collect();
        machine.write(&output::machine_path(dir.path(), "seed")).unwrap();
        write().unwrap();
        let text = fs::read_to_string(dir.path().join("rates.md")).unwrap();
        assert!(text.ends_with("5.00 ns ```text\na table\n```"), "{text}");

        machine.cpu = "another".into();
        machine.write(&output::machine_path(dir.path(), "seed")).unwrap();
        assert!(write().unwrap_err().to_string().contains("another machine"));
    }

    #[test]
    fn a_pair_is_in_the_unit_of_its_table() {
        let (text, ..) = report("| {{pair bucketed/add threads=2 unit=ns}} |\n").unwrap();
        assert!(text.ends_with(&format!("| 2.40 | 62.0 | {PEER} |\n")), "{text}");
        let error = report("{{pair bucketed/add unit=us}}").err().map(|e| e.to_string());
        assert!(error.is_some_and(|error| error.ends_with("is ns, not us")));
    }

    #[test]
    fn a_table_without_rows_is_an_error() {
        let error = report("| a |\n| --- |\n\nmore\n").err().map(|e| e.to_string());
        assert_eq!(error.as_deref(), Some("a table has no rows: | a |"));
    }

    #[test]
    fn a_page_can_consist_of_counts() {
        let (_, _, dir) = report("").unwrap();
        let setting =
            r#"{"rustc":"1","llvm":"2","target":"t","libc":"l","valgrind":"v","libraries":{}}"#;
        let cell = r#"{"case":"reset","library":"quipu_up","instructions":7,"branches":1}"#;
        let path = counts::arena_path(dir.path());
        fs::write(&path, format!("{setting}\n{cell}\n")).unwrap();
        let template = dir.path().join("template.md");
        fs::write(&template, "{{counts others}}\n").unwrap();
        let page = Report::of("page").folder(dir.path()).template(&template);
        let files = page.render().unwrap();
        assert!(files[0].1.contains("\n| `reset` | **7 / 1** | - |"), "{}", files[0].1);
        fs::write(&template, "{{counts other}}\n").unwrap();
        let error = page.render().unwrap_err().to_string();
        assert!(error.ends_with("no table of counts is named other"), "{error}");
    }

    #[test]
    fn errors_name_the_line_of_the_text() {
        let error = |text: &str| report(text).err().map(|e| e.to_string()).unwrap_or_default();
        let unknown = error("a\n\n{{chart x}}");
        assert!(unknown.contains("template.md:3: no placeholder is named chart"), "{unknown}");
        let missing = error("{{table exact/*}}");
        assert!(missing.contains(":1: no record has the case exact/*"), "{missing}");
        let many = error("{{value bucketed/add threads=3}}");
        assert!(many.contains("0 records instead of 1"), "{many}");
        let option = error("{{table bucketed/* pear=x}}");
        assert!(option.contains("pear"), "{option}");
    }
}
