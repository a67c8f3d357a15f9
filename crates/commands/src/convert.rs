//! `quipu messages convert`: converts a stream of messages from one format to another, in constant
//! memory.
//!
//! The output is written when 64 KiB have accumulated, and whenever the input pauses, so a slow
//! pipe never delays a message.

mod output;
mod stop;

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{BinaryBytes, HumanCount, ProgressBar};
use quipu_arena::Arena;
use quipu_wire::{AnyDecoder, AnyEncoder, AnyFormat, Kind, Message, MetricType};

use crate::output::Error;
use crate::wire::{
    CHUNK, FramingName, Head, Input, MessageKind, Reading, formats, messages, name, progress_line,
};
use output::Output;
use stop::{Stop, Wait};

/// Arguments of `quipu messages convert`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Messages are written as they arrive: a slow pipe delays none. With -o, the file \
        appears when it is complete; until then, and after an error, FILE.part holds what was \
        converted."
)]
pub struct Convert {
    /// File to read; - is standard input
    #[arg(default_value = "-", value_name = "FILE", hide_default_value = true)]
    pub file: PathBuf,

    /// Format to read
    #[arg(long, value_parser = formats(), value_name = "FORMAT")]
    pub from: AnyFormat,

    /// Format to write
    #[arg(long, value_parser = formats(), value_name = "FORMAT")]
    pub to: AnyFormat,

    /// Kind of every message
    #[arg(long, value_enum, value_name = "KIND", default_value = "union")]
    pub message: MessageKind,

    /// Framing of the messages that are read
    #[arg(long, value_enum, value_name = "FRAMING", default_value = "own")]
    pub from_framing: FramingName,

    /// Framing of the messages that are written
    #[arg(long, value_enum, value_name = "FRAMING", default_value = "own")]
    pub to_framing: FramingName,

    /// File to write, which must not exist yet; standard output without it
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Replaces an existing output file
    #[arg(long)]
    pub force: bool,

    /// Skips messages that cannot be written, and unreadable ones where the framing has lengths
    #[arg(long)]
    pub keep_going: bool,
}

/// Returns whether a message contains a value in addition to its id.
fn has_value(message: &Message<'_>) -> bool {
    let union = message.to_union();
    let typed = message.kind() == Kind::MetricUnion && union.metric_type != MetricType::UNKNOWN;
    typed || union.counter != 0 || !union.timer.is_empty() || union.gauge.to_bits() != 0
}

/// Converts messages until the input ends.
///
/// # Errors
///
/// Fails if a file cannot be opened, read or written, if messages were skipped, or if a signal
/// ended the conversion. Everything that was converted before the error is written.
pub fn run(arguments: &Convert) -> Result<(), Error> {
    // Opening a FIFO waits for its other end. Until then, a signal can end the program directly.
    let input = Input::open(&arguments.file)?;
    let path = arguments.output.as_deref().unwrap_or(Path::new("-"));
    let stream = Output::open_stream(path)?;
    if stream.as_ref().is_some_and(Output::is_terminal) && !arguments.to.is_text() {
        return Err(Error::new(format_args!(
            "{} is a terminal: {} is not text: give -o FILE, or redirect the output",
            stream.as_ref().map_or("the output", Output::name),
            arguments.to.as_str()
        )));
    }
    let stop = Stop::watch().map_err(|error| Error::new(format_args!("signals: {error}")))?;
    let output = match stream {
        Some(output) => output,
        None => Output::create(path, arguments.force, &input)?,
    };
    let mut conversion = Conversion::new(arguments, input, output);
    let end = conversion.run(&stop);
    conversion.finish(end)
}

/// The reason why a conversion ended.
enum End {
    /// The input ended.
    Whole,
    /// A signal with this number arrived.
    Stopped(i32),
    /// The reader closed the output.
    Closed,
    /// A message is unreadable. `has_length` is true if the start of the next message is known.
    Unreadable { fault: quipu_wire::Error, has_length: bool },
    /// The target format cannot carry a message.
    Unwritable(quipu_wire::Error),
    /// The first message contains no value of the given kind, but a value of this kind.
    OtherKind(MessageKind),
    /// Reading the input failed.
    Input(Error),
    /// Writing the output failed.
    Output(io::Error),
}

/// The interval between progress updates.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

const SKIPS: &str = "; --keep-going skips such messages";
const NO_LENGTH: &str = "; without lengths between them, the next message cannot be found";

struct Conversion<'a> {
    arguments: &'a Convert,
    input: Input,
    output: Output,
    head: Head,
    decoder: AnyDecoder,
    encoder: AnyEncoder,
    arena: Arena,
    gathered: Vec<u8>,
    read: u64,
    written: u64,
    converted: u64,
    skipped: u64,
    /// The first skipped message, and the reason.
    first_skipped: Option<(u64, quipu_wire::Error)>,
    started: Instant,
    /// The time when progress was last shown.
    shown: Instant,
    progress: ProgressBar,
}

impl<'a> Conversion<'a> {
    fn new(arguments: &'a Convert, input: Input, output: Output) -> Conversion<'a> {
        let kind = arguments.message.kind();
        let progress = progress(&output);
        Conversion {
            arguments,
            input,
            output,
            head: Head::default(),
            decoder: arguments.from.decoder(kind, arguments.from_framing.framing()),
            encoder: arguments.to.encoder(arguments.to_framing.framing()),
            arena: Arena::new(),
            gathered: Vec::new(),
            read: 0,
            written: 0,
            converted: 0,
            skipped: 0,
            first_skipped: None,
            started: Instant::now(),
            shown: Instant::now(),
            progress,
        }
    }

    /// Converts messages until the end, and writes the output.
    fn run(&mut self, stop: &Stop) -> End {
        let end = self.pump(stop).err().unwrap_or(End::Whole);
        match end {
            End::Closed | End::Output(_) => end,
            end => self.write_out().err().unwrap_or(end),
        }
    }

    fn pump(&mut self, stop: &Stop) -> Result<(), End> {
        let mut buffer = vec![0; CHUNK];
        loop {
            match stop.wait(self.input.descriptor(), Some(Duration::ZERO)).map_err(End::Output)? {
                Wait::Ready => {}
                Wait::Stopped(number) => return Err(End::Stopped(number)),
                Wait::Paused => {
                    self.decoder.pause();
                    self.convert()?;
                    self.write_out()?;
                    self.show_progress();
                    if let Wait::Stopped(number) =
                        stop.wait(self.input.descriptor(), None).map_err(End::Output)?
                    {
                        return Err(End::Stopped(number));
                    }
                }
            }
            let len = self.input.read(&mut buffer).map_err(End::Input)?;
            if len == 0 {
                self.head.end();
                self.decoder.end();
                return self.convert();
            }
            self.head.push(&buffer[..len]);
            self.decoder.push(&buffer[..len]);
            self.read += len as u64;
            self.convert()?;
            self.show_progress();
        }
    }

    /// Converts the messages that the decoder contains.
    fn convert(&mut self) -> Result<(), End> {
        loop {
            let position = self.decoder.position();
            let mut guard = self.arena.guard();
            let written = match self.decoder.next(&guard.scope()) {
                Ok(None) => return Ok(()),
                Ok(Some(message)) => {
                    if self.converted == 0 && !has_value(&message) {
                        let Convert { from, message, from_framing, .. } = *self.arguments;
                        let reading =
                            Reading { format: from, kind: message, framing: from_framing };
                        if let Some(kind) = self.head.other_kind(reading) {
                            return Err(End::OtherKind(kind));
                        }
                    }
                    Ok(self.encoder.append(&message, &mut self.gathered))
                }
                Err(fault) => Err(fault),
            };
            drop(guard);
            let fault = match written {
                Ok(written) => written.err(),
                Err(fault) => {
                    // If the decoder has advanced, it can continue after this message.
                    let has_length = self.decoder.position() > position;
                    if !has_length || !self.arguments.keep_going {
                        return Err(End::Unreadable { fault, has_length });
                    }
                    Some(fault)
                }
            };
            match fault {
                None => self.converted += 1,
                Some(fault) if self.arguments.keep_going => {
                    self.skipped += 1;
                    let number = self.converted + self.skipped;
                    self.first_skipped.get_or_insert((number, fault));
                }
                Some(fault) => return Err(End::Unwritable(fault)),
            }
            if self.gathered.len() >= CHUNK {
                self.write_gathered()?;
            }
        }
    }

    /// Writes all converted messages.
    fn write_out(&mut self) -> Result<(), End> {
        self.encoder.flush(&mut self.gathered);
        self.write_gathered()
    }

    fn write_gathered(&mut self) -> Result<(), End> {
        self.output.write(&self.gathered).map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => End::Closed,
            _ => End::Output(error),
        })?;
        self.written += self.gathered.len() as u64;
        self.gathered.clear();
        Ok(())
    }

    fn show_progress(&mut self) {
        if self.progress.is_hidden() || self.shown.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.shown = Instant::now();
        let read = BinaryBytes(self.read);
        let total = self.input.total().map(|total| format!(" of {}", BinaryBytes(total)));
        let rate = self.converted as f64 / self.started.elapsed().as_secs_f64();
        self.progress.set_message(format!(
            "{read}{}, {}, {}/s",
            total.unwrap_or_default(),
            messages(self.converted),
            HumanCount(rate as u64)
        ));
    }

    /// Renames the output to its final name, and reports the result.
    fn finish(self, end: End) -> Result<(), Error> {
        let is_terminal = !self.progress.is_hidden();
        self.progress.finish_and_clear();
        let (converted, input) = (self.converted, self.input.name());
        let count = match converted {
            1 => String::from("1 message was converted"),
            _ => format!("{} were converted", messages(converted)),
        };
        let fault = match end {
            End::Whole => None,
            End::Closed => return self.output.discard(),
            End::Stopped(number) => {
                let left = self.output.keep_part()?;
                return Err(Error::signal(number, format!("{input}: stopped; {count}{left}")));
            }
            End::Unreadable { fault, has_length } => {
                let Convert { from: format, message: kind, from_framing: framing, .. } =
                    *self.arguments;
                // If any message was readable, the format and the framing are probably right.
                let hint = match converted {
                    0 => self.head.hint(Reading { format, kind, framing }),
                    _ => None,
                };
                let hint = match hint {
                    Some(hint) => format!("; {hint}"),
                    None if has_length => SKIPS.into(),
                    None if self.arguments.keep_going => NO_LENGTH.into(),
                    None => String::new(),
                };
                Some((format!("{input}: {fault}; {count}"), hint))
            }
            End::Unwritable(fault) => {
                let number = converted + self.skipped + 1;
                Some((format!("{input}: message {number}: {fault}; {count}"), SKIPS.into()))
            }
            End::OtherKind(kind) => {
                let kind = name(&kind);
                let text = format!("{input}: the first message has no value of this kind; {count}");
                Some((text, format!("; is each message a {kind}? --message {kind}")))
            }
            End::Input(error) => Some((format!("{error}; {count}"), String::new())),
            End::Output(error) => {
                let output = self.output.name();
                let text =
                    format!("{output}: {error}; {count}, of which the last ones are missing");
                Some((text, String::new()))
            }
        };
        let skipped = self.first_skipped.map(|(number, first)| {
            let skipped = match self.skipped {
                1 => String::from("1 message was skipped"),
                skipped => format!("{} were skipped, the first one", messages(skipped)),
            };
            format!("{skipped}: message {number}: {first}")
        });
        if let Some((text, hint)) = fault {
            let left = self.output.keep_part()?;
            let skipped = skipped.map_or_else(String::new, |skipped| format!("; {skipped}"));
            return Err(Error::new(format_args!("{text}{left}{skipped}{hint}")));
        }
        self.output.finish()?;
        if let Some(skipped) = skipped {
            return Err(Error::new(format_args!("{input}: {skipped}; {count}")));
        }
        if is_terminal {
            let Convert { from, to, .. } = self.arguments;
            // Print the summary only on terminals.
            let _ = writeln!(
                io::stderr(),
                "{count}, {} of {} to {} of {}, in {:.1} s",
                BinaryBytes(self.read),
                from.as_str(),
                BinaryBytes(self.written),
                to.as_str(),
                self.started.elapsed().as_secs_f64()
            );
        }
        Ok(())
    }
}

/// Creates a progress line, unless the messages are written to the terminal.
fn progress(output: &Output) -> ProgressBar {
    match output.is_terminal() {
        true => ProgressBar::hidden(),
        false => progress_line(),
    }
}
