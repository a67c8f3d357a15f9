//! The command line of `quipu`: a subcommand for each module of `quipu_commands`, and `quipu
//! serve`, which runs the daemon.

#[cfg(target_env = "musl")]
mod allocator;

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use quipu_cli::config::{self, Flags, Settings};
use quipu_cli::{logs, serve};
use quipu_commands::compare::Compare;
use quipu_commands::convert::Convert;
use quipu_commands::expose::Expose;
use quipu_commands::output::{self, Coverage, print, warn, warn_lines};
use quipu_commands::record::{self, Record};
use quipu_commands::snapshot::{Restore, Snapshot};
use quipu_commands::{
    compare, convert, count, diff, expose, get, inspect, lint, push, snapshot, top,
};
use quipu_segment::printable;

/// Crash-safe metrics: count in shared files, watch them live, and run a daemon that collects and
/// forwards them
#[derive(Parser)]
#[command(name = "quipu", version = VERSION, arg_required_else_help = true, help_template = HELP)]
struct Cli {
    #[command(flatten)]
    color: Color,

    #[command(subcommand)]
    command: Command,
}

/// Colors, for all commands.
#[derive(Args)]
struct Color {
    /// When to use colors: in a terminal unless NO_COLOR is set, always, or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide = true)]
    color: ColorChoice,
}

/// The help of the whole program. [`groups`] writes the list of commands.
const HELP: &str = "{about-with-newline}\n{usage-heading} {usage}{after-help}";

/// The commands by purpose, in the order of the help.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Daemon", &["serve", "check", "snapshot", "restore"]),
    ("Look", &["top", "get", "diff", "inspect", "record", "expose"]),
    ("Count", &["inc", "set", "observe", "time", "push"]),
    ("Messages", &["messages"]),
    ("Program", &["completions", "man", "version", "help"]),
];

/// Formats the list of commands by purpose, each with the first line of its description.
fn groups(cli: &clap::Command) -> StyledStr {
    let styles = cli.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut list = StyledStr::new();
    for (number, (group, names)) in GROUPS.iter().enumerate() {
        let space = if number > 0 { "\n" } else { "" };
        let _ = writeln!(list, "{space}{header}{group}:{header:#}");
        for name in *names {
            let about = match cli.find_subcommand(name).and_then(clap::Command::get_about) {
                Some(about) => about.to_string(),
                // clap adds this command later.
                None => "Print this message or the help of the given subcommand(s)".to_owned(),
            };
            let _ = writeln!(list, "  {literal}{name:<11}{literal:#} {about}");
        }
    }
    let _ = write!(
        list,
        "\nquipu COMMAND --help shows examples. Guides: {}/tree/main/docs",
        env!("CARGO_PKG_REPOSITORY")
    );
    list
}

/// Returns the command line with its help.
fn command() -> clap::Command {
    let cli = Cli::command();
    let groups = groups(&cli);
    cli.after_help(groups)
}

/// The command line of the daemon, without the other commands. The code that describes all commands
/// is spread over the program, so a daemon that ran this code would load 1.7 MB more of the
/// program.
#[derive(Parser)]
#[command(name = "quipu", version = VERSION)]
struct DaemonCli {
    #[command(flatten)]
    color: Color,

    #[command(subcommand)]
    command: DaemonCommand,
}

#[derive(Subcommand)]
enum DaemonCommand {
    /// Run the daemon, which collects metrics and forwards them
    ///
    /// The daemon accepts metrics by HTTP, StatsD, Graphite, scrapes and files of other programs,
    /// exposes them to Prometheus, and forwards them by remote write and OTLP.
    Serve(Box<Serve>),
}

#[derive(Subcommand)]
enum Command {
    /// Run the daemon, which collects metrics and forwards them
    ///
    /// The daemon accepts metrics by HTTP, StatsD, Graphite, scrapes and files of other programs,
    /// exposes them to Prometheus, and forwards them by remote write and OTLP.
    Serve(Box<Serve>),
    /// Check settings of the daemon, or an exposition, for mistakes
    Check(Check),
    /// Back up the daemon's state while it runs, with checksums
    Snapshot(Snapshot),
    /// Create a state file from a snapshot
    Restore(Restore),
    /// Watch metrics live: of a segment, a directory, a process, a URL
    Top(top::Top),
    /// Print the value of one series
    Get(get::Get),
    /// Compare two sources, or one source with itself some time later
    Diff(diff::Diff),
    /// Inspect a segment file, even after a crash or if it is damaged
    Inspect(inspect::Inspect),
    /// Record the segments of other programs, second by second
    Record(Record),
    /// Expose the metrics that application processes keep in files
    Expose(Expose),
    /// Add to a counter or a gauge in a segment file
    Inc(count::Inc),
    /// Set a gauge in a segment file
    Set(count::Set),
    /// Observe a value in a histogram in a segment file
    Observe(count::Observe),
    /// Run a command, and observe its duration in a histogram in a segment file
    Time(count::Time),
    /// Count in a running daemon: add to a counter, or set a gauge
    Push(push::Push),
    /// Convert messages of metrics between 18 formats, or compare the formats
    Messages(Messages),
    /// Print the completions for a shell
    Completions {
        /// Shell
        #[arg(value_enum, value_name = "SHELL")]
        shell: Shell,
    },
    /// Write the man pages into a directory
    Man {
        /// Directory, which must exist
        #[arg(value_name = "DIR", default_value = ".")]
        directory: PathBuf,
    },
    /// Print the version and the commit
    Version,
}

#[derive(Args)]
struct Messages {
    #[command(subcommand)]
    command: MessagesCommand,
}

#[derive(Subcommand)]
enum MessagesCommand {
    /// Convert messages from one format to another
    Convert(Convert),
    /// Compare the size and speed of every format on the messages of a file
    Compare(Compare),
}

#[derive(Args)]
#[command(after_help = "Times are written as 200ms, 60s, 1h 30m; sizes and counts as 4096, 10k, \
    1MB, 64MiB. The TOML file can hold every setting, under its name without the leading dashes. \
    Flags override the environment, which overrides the file.")]
struct Serve {
    /// TOML file with settings
    #[arg(long, env = "QUIPU_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the settings, print the effective ones, and exit
    #[arg(long)]
    check_config: bool,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Args)]
struct Check {
    #[command(subcommand)]
    command: CheckCommand,
}

#[derive(Subcommand)]
enum CheckCommand {
    /// Check a TOML file of settings, and the files that it names
    Config {
        /// TOML file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Check an exposition for lines that no scraper reads, and for breaches of Prometheus'
    /// conventions
    Metrics(lint::Metrics),
}

/// The exit code for unusable settings, the same as clap's for usage errors.
const USAGE: u8 = 2;

/// The version, with the commit in release builds.
const VERSION: &str = env!("BUILD_VERSION");

/// The warning about an environment variable that begins with `QUIPU_` and is not a setting.
const NO_SETTING: &str = "is not a setting and is ignored; quipu serve --help lists the settings";

fn main() -> ExitCode {
    #[cfg(target_env = "musl")]
    allocator::set_up();
    if std::env::args_os().nth(1).is_some_and(|name| name == "serve") {
        let DaemonCli { color, command: DaemonCommand::Serve(arguments) } =
            parse(DaemonCli::command);
        output::choose_color(color.color);
        return serve(&arguments);
    }
    let cli: Cli = parse(command);
    output::choose_color(cli.color.color);
    let code = match cli.command {
        Command::Serve(arguments) => return serve(&arguments),
        Command::Check(Check { command: CheckCommand::Config { file } }) => {
            return check_config(&file);
        }
        Command::Check(Check { command: CheckCommand::Metrics(arguments) }) => {
            lint::run(&arguments).map(lint::Outcome::code)
        }
        Command::Snapshot(arguments) => snapshot::snapshot(&arguments).map(|()| 0),
        Command::Restore(arguments) => snapshot::restore(&arguments).map(|()| 0),
        Command::Expose(arguments) => expose::run(&arguments).map(Coverage::code),
        Command::Inspect(arguments) => inspect::run(&arguments).map(Coverage::code),
        Command::Top(arguments) => top::run(&arguments).map(top::End::code),
        Command::Get(arguments) => get::run(&arguments).map(Coverage::code),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Record(arguments) => record::run(&arguments).map(|()| 0),
        Command::Inc(arguments) => count::inc(&arguments).map(|()| 0),
        Command::Set(arguments) => count::set(&arguments).map(|()| 0),
        Command::Observe(arguments) => count::observe(&arguments).map(|()| 0),
        Command::Time(arguments) => Ok(count::time(&arguments)),
        Command::Push(arguments) => push::run(&arguments).map(|()| 0),
        Command::Messages(Messages { command: MessagesCommand::Convert(arguments) }) => {
            convert::run(&arguments).map(|()| 0)
        }
        Command::Messages(Messages { command: MessagesCommand::Compare(arguments) }) => {
            compare::run(&arguments).map(|()| 0)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "quipu", &mut script);
            return printed(print(|out| out.write_all(&script)));
        }
        Command::Man { directory } => {
            // A page about the help of each command would repeat the other pages.
            let cli = Cli::command()
                .disable_help_subcommand(true)
                .mut_subcommands(|command| command.disable_help_subcommand(true));
            return match clap_mangen::generate_to(cli, &directory) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    let name = printable(&directory);
                    let message = format_args!("{name}: {error}; name a directory that exists");
                    fail(&output::Error::new(message))
                }
            };
        }
        Command::Version => return printed(print(|out| writeln!(out, "quipu {VERSION}"))),
    };
    code.map_or_else(|error| fail(&error), ExitCode::from)
}

/// Parses the arguments. If they are unusable, or ask for the help, this ends the process.
fn parse<T: FromArgMatches>(command: impl Fn() -> clap::Command) -> T {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let color = color_choice(&arguments);
    let parse = |arguments: &[OsString]| {
        let matches = command().color(color).try_get_matches_from(arguments)?;
        T::from_arg_matches(&matches)
    };
    let error = match parse(&arguments) {
        Ok(parsed) => return parsed,
        Err(error) => error,
    };
    let escaped: Vec<OsString> =
        arguments.iter().map(|argument| printable(argument).to_string().into()).collect();
    if !error.use_stderr() || escaped == arguments {
        with_tip(error).exit();
    }
    // The message quotes arguments, so these must not control a terminal.
    match parse(&escaped) {
        Err(error) if error.use_stderr() => with_tip(error).exit(),
        _ => {
            output::choose_color(color);
            warn_lines(&error.render().to_string().trim_start_matches("error: ").trim_end());
            std::process::exit(error.exit_code());
        }
    }
}

/// Returns the choice of `--color`, which must be known before clap writes help or an error.
fn color_choice(arguments: &[OsString]) -> ColorChoice {
    let mut choice = ColorChoice::Auto;
    let mut rest = arguments.iter().filter_map(|argument| argument.to_str());
    while let Some(argument) = rest.next().filter(|argument| *argument != "--") {
        let value = match argument.strip_prefix("--color") {
            Some("") => rest.next(),
            Some(value) => value.strip_prefix('='),
            None => None,
        };
        choice = value.and_then(|value| value.parse().ok()).unwrap_or(choice);
    }
    choice
}

/// Adds the remedy to an error of clap, if its message lacks it.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let command = std::env::args_os().nth(1).unwrap_or_default();
    let missing = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    let tip = match (command.to_str().unwrap_or_default(), error.kind()) {
        ("time", ErrorKind::UnknownArgument) => {
            "put -- before the command: quipu time SERIES -- COMMAND..."
        }
        ("diff", ErrorKind::MissingRequiredArgument) if missing.contains("<B>") => {
            "give --after TIME to compare A with itself, this time later"
        }
        (_, ErrorKind::MissingRequiredArgument) if missing.contains("--file") => {
            "the variable QUIPU_FILE can name the file for all commands"
        }
        ("check", ErrorKind::InvalidSubcommand) => {
            "write quipu check metrics FILE for an exposition, quipu check config FILE for settings"
        }
        (_, ErrorKind::InvalidSubcommand) => {
            closest_first(&mut error);
            if error.get(ContextKind::SuggestedSubcommand).is_some() {
                return error;
            }
            "quipu --help lists the commands"
        }
        _ => return error,
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.to_owned().into()]));
    error
}

/// Reverses clap's suggestions, because clap lists the closest one last.
fn closest_first(error: &mut clap::Error) {
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) {
        let names = names.iter().rev().cloned().collect();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
}

fn serve(arguments: &Serve) -> ExitCode {
    let settings = match settings(arguments) {
        Ok(settings) => settings,
        Err(error) => return unusable(&error),
    };
    let environment: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
    let strange = strange(&environment);
    if arguments.check_config {
        for name in strange {
            warn(&format_args!("{} {NO_SETTING}", printable(name)));
        }
        settings.warnings().iter().for_each(|warning| warn(warning));
        if let Err(error) = settings.check_files() {
            return unusable(&error);
        }
        return match settings.to_toml() {
            Ok(text) => printed(print(|out| out.write_all(text.as_bytes()))),
            Err(error) => unusable(&error),
        };
    }
    logs::start(settings.log_format, settings.log_level);
    for name in strange {
        tracing::warn!(name = %printable(name), "an environment variable {NO_SETTING}");
    }
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    match serve::run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let phase = match error {
                serve::Error::Serving(_) | serve::Error::Sync(_) => "shutdown",
                _ => "startup",
            };
            tracing::error!("{phase} failed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the environment variables that look like settings but are not settings.
fn strange(environment: &[OsString]) -> Vec<&OsStr> {
    let names = || environment.iter().map(|name| &**name);
    // We return early in most environments, because they contain no such variable.
    if config::strange(names(), &[]).is_empty() {
        return Vec::new();
    }
    let command = Serve::augment_args(clap::Command::new("serve"));
    let known: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_env).collect();
    config::strange(names(), &known)
}

/// Checks a settings file like `quipu serve --config`, without the environment.
fn check_config(file: &Path) -> ExitCode {
    let settings = match Flags::read(file).and_then(Settings::resolve) {
        Ok(settings) => settings,
        Err(error) => return unusable(&error),
    };
    settings.warnings().iter().for_each(|warning| warn(warning));
    if let Err(error) = settings.check_files() {
        return unusable(&error);
    }
    printed(print(|out| writeln!(out, "{}: the settings are valid", printable(file))))
}

fn printed(result: Result<Option<()>, output::Error>) -> ExitCode {
    result.map_or_else(|error| fail(&error), |_| ExitCode::SUCCESS)
}

fn settings(arguments: &Serve) -> Result<Settings, quipu_cli::config::Error> {
    let file = match &arguments.config {
        Some(path) => Flags::read(path)?,
        None => Flags::default(),
    };
    Settings::resolve(arguments.flags.clone().or(file))
}

fn fail(error: &output::Error) -> ExitCode {
    // If standard error is closed, only the exit code reports the error.
    warn(error);
    ExitCode::from(error.code())
}

/// Reports unusable settings. An error of a TOML file quotes the line below the message.
fn unusable(error: &config::Error) -> ExitCode {
    warn_lines(error);
    ExitCode::from(USAGE)
}

#[cfg(test)]
mod tests {
    use quipu_process::size::Size;

    use super::*;

    #[test]
    fn the_help_lists_every_command_once() {
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut cli = command();
        cli.build();
        let mut all: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
        listed.sort_unstable();
        all.sort_unstable();
        assert_eq!(listed, all);
    }

    #[test]
    fn the_color_is_known_before_the_arguments_are_parsed() {
        for (words, expected) in [
            (&["top", "--help"][..], ColorChoice::Auto),
            (&["--color", "always", "top"], ColorChoice::Always),
            (&["top", "--color=never", "--help"], ColorChoice::Never),
            (&["--color", "always", "--color", "blue"], ColorChoice::Always),
            (&["time", "x", "--", "ls", "--color=always"], ColorChoice::Auto),
            (&["top", "--color"], ColorChoice::Auto),
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(color_choice(&words), expected, "{words:?}");
        }
    }

    #[test]
    fn serve_is_the_same_without_the_other_commands() {
        let cases: &[&[&str]] = &[
            &["--help"],
            &["-h"],
            &["--version"],
            &["--listn", "127.0.0.1:0"],
            &["--threads", "many"],
            &["--log-format"],
            &["word"],
        ];
        for words in cases {
            let all = ["quipu", "serve"].iter().chain(*words);
            let expected = Cli::try_parse_from(all.clone()).err().map(|error| error.to_string());
            let error = DaemonCli::try_parse_from(all).err().map(|error| error.to_string());
            assert!(expected.is_some(), "{words:?}");
            assert_eq!(error, expected, "{words:?}");
        }
        let words = ["quipu", "serve", "--threads", "2"];
        let Ok(DaemonCli { command: DaemonCommand::Serve(serve), .. }) =
            DaemonCli::try_parse_from(words)
        else {
            panic!("{words:?} is not read");
        };
        assert_eq!(serve.flags.http.threads, Some(Size(2)));
    }
}
