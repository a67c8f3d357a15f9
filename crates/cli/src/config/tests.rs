//! Tests of the help, the order of precedence, and the checks of settings.

use std::fmt::Write as _;

use super::*;
use clap::{Arg, ArgAction, Command, CommandFactory, FromArgMatches, Parser};
use quipu_client::url_text::UrlText;
use quipu_process::time::Time;

#[path = "../../tests/common/generated.rs"]
mod generated;

use generated::{Page, cell};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

fn resolve(toml: &str) -> Result<Settings, Error> {
    Settings::resolve(Flags::from_settings(toml).unwrap())
}

#[test]
fn the_help_names_the_effective_defaults() {
    let defaults: toml::Table = toml::from_str(&resolve("").unwrap().to_toml().unwrap()).unwrap();
    let command: Command = Line::command();
    for argument in command.get_arguments().filter(|a| a.get_id() != "help") {
        let name = argument.get_long().unwrap();
        let help = argument.get_help().unwrap().to_string();
        let env = argument.get_env().unwrap().to_str().unwrap();
        assert_eq!(env, format!("QUIPU_{}", name.to_uppercase().replace('-', "_")));
        let shown = match defaults.get(name) {
            None => "none".to_owned(),
            Some(toml::Value::String(text)) => text.replace("1m", "60s"),
            Some(toml::Value::Array(list)) => list[0].as_str().unwrap().to_owned(),
            Some(other) => other.to_string(),
        };
        let derived = [
            "span",
            "key-accuracy",
            "scrape-timeout",
            "families-per-source",
            "remote-write-queue-directory",
        ]
        .contains(&name);
        assert!(derived || help.contains(&format!("[default: {shown}]")), "{name}: {help}");
    }
}

#[test]
fn flags_override_the_file() {
    let line = ["quipu", "--window", "10s", "--keys", "5"];
    let flags = Line::from_arg_matches(&Line::command().get_matches_from(line)).unwrap().flags;
    let file = Flags::from_settings("window = \"20s\"\naccuracy = \"1s\"").unwrap();
    let settings = Settings::resolve(flags.or(file)).unwrap();
    let shown = settings.to_toml().unwrap();
    for part in ["window = \"10s\"", "accuracy = \"1s\"", "keys = 5", "span = \"1h\""] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    // You can use the output as a settings file.
    let again = resolve(&shown).unwrap();
    assert_eq!(again.flags, settings.flags);
}

#[test]
fn values_with_commas_stay_whole() {
    let line = [
        "quipu",
        "--external-label",
        "zones=a,b=c",
        "--external-label",
        "x=1\ny=2",
        "--remote-write",
        "http://a/w?ids=1,2",
        "--otlp-promote",
        "a,b",
        "--push-add-jobs",
        "c,d",
    ];
    let flags = Line::from_arg_matches(&Line::command().get_matches_from(line)).unwrap().flags;
    let labels = flags.labels.external_label.iter().flatten().map(ToString::to_string);
    // One line each, like in the environment variable.
    assert_eq!(labels.collect::<Vec<_>>(), ["zones=a,b=c", "x=1", "y=2"]);
    let urls = flags.remote_write.remote_write.iter().flatten().map(UrlText::as_str);
    assert_eq!(urls.collect::<Vec<_>>(), ["http://a/w?ids=1,2"]);
    assert_eq!(flags.inputs.otlp.otlp_promote.unwrap(), ["a,b"]);
    assert_eq!(flags.inputs.push.push_add_jobs.unwrap(), ["c,d"]);
}

#[test]
fn sizes_and_counts_have_units_and_are_printed_exactly() {
    let toml = "body-bytes = \"1.5MiB\"\nkeys = \"20k\"\nsample-rate = \"1k\"\nseries = 7";
    let line = ["quipu", "--header-bytes", "8KiB", "--connections", "1k"];
    let flags = Line::from_arg_matches(&Line::command().get_matches_from(line)).unwrap().flags;
    let settings = Settings::resolve(flags.or(Flags::from_settings(toml).unwrap())).unwrap();
    let shown = settings.to_toml().unwrap();
    for part in [
        "body-bytes = 1572864",
        "keys = 20000",
        "sample-rate = 1000",
        "series = 7",
        "header-bytes = 8192",
        "connections = 1000",
    ] {
        assert!(shown.contains(&format!("{part}\n")), "{part} in {shown}");
    }
    for argument in Line::command().get_arguments() {
        let is_size = argument.get_value_names().is_some_and(|names| {
            names.iter().any(|name| ["BYTES", "COUNT", "RATE"].contains(&name.as_str()))
        });
        if is_size {
            let flag = format!("--{}", argument.get_long().unwrap());
            let parse = |text| Line::command().try_get_matches_from(["quipu", &flag, text]);
            let error = parse("many").unwrap_err().to_string();
            assert!(error.contains("such as 4096, 10k, 1MB or 64MiB"), "{flag}: {error}");
        }
    }
}

#[test]
fn senseless_values_name_the_flag_and_the_way_out() {
    for (toml, flag, way) in [
        ("window = \"0s\"", "--window", "at least a nanosecond"),
        ("window = \"1s\"\naccuracy = \"300ms\"", "--window", "take 900ms or 1.2s"),
        ("accuracy = \"2m\"", "--window", "take 120s, or a finer accuracy"),
        ("span = \"30s\"", "--span", "give at least 1m"),
        ("key-bytes = 0", "--key-bytes", "give 1 to 4096"),
        ("checkpoint = \"0s\"", "--checkpoint", "give at least 1ms"),
        ("keys = 0", "--keys", "room for 1 to 2^28 keys"),
        ("threads = 0", "--threads", "give 1 to 1024"),
        ("connections = 0", "--connections", "give 1 to"),
        ("read-timeout = \"1ms\"", "--read-timeout", "give at least 10ms"),
        ("accuracy = \"1ns\"", "--window", "a coarser accuracy"),
        ("statsd-receive-buffer = 1", "--statsd-receive-buffer", "give 4096 to"),
        ("graphite-receive-buffer = 1", "--graphite-receive-buffer", "give 4096 to"),
    ] {
        let message = resolve(toml).unwrap_err().to_string();
        assert!(message.contains(flag) && message.contains(way), "{toml}: {message}");
    }
    assert!("tomorrow".parse::<Time>().unwrap_err().contains("such as 200ms"));
    assert!("-1s".parse::<Time>().is_err());
    assert!("99999999999999999999s".parse::<Time>().is_err());
}

#[test]
fn queries_of_receivers_and_targets_are_not_shown() {
    let settings = resolve(
        "remote-write = [\"http://a/w?key=fish\"]\notlp = [\"http://b?key=fish\"]\n\
         scrape = [\"j=http://c?key=fish\", \"unix:/d:/m?key=fish\"]",
    );
    let settings = settings.unwrap();
    let shown = settings.flags.shown();
    assert_eq!(shown["remote-write"], "[\"http://a/w\"]");
    assert_eq!(shown["otlp"], "[\"http://b/v1/metrics\"]");
    assert_eq!(shown["scrape"], "[\"j=http://c\", \"unix:/d:/m\"]");
    let file = settings.to_toml().unwrap();
    for url in ["http://a/w", "http://b/v1/metrics", "j=http://c", "unix:/d:/m"] {
        assert!(file.contains(&format!("\"{url}?<secret>\"")), "{file}");
    }
    assert!(!file.contains("fish"), "{file}");
    // The shown file is not mistaken for the settings.
    let error = resolve("scrape = [\"j=http://c?<secret>\"]").unwrap_err().to_string();
    assert!(error.starts_with("cannot use --scrape: value 1: "), "{error}");
    // An error about two targets contains no secrets either.
    let error = resolve("scrape = [\"http://a/x?key=fish\", \"http://a/y?key=fish\"]");
    let error = error.unwrap_err().to_string();
    assert!(error.contains("http://a/y and http://a/x have") && !error.contains("fish"), "{error}");
}

#[test]
fn places_that_are_likely_mistakes_are_warnings() {
    for (place, part) in [
        ("~/run", Some("only a shell expands")),
        ("/none/a:/none/b", Some("on a line of its own in QUIPU_SEGMENTS")),
        ("/none/a,/none/b", Some("as one path")),
        ("/none/*.quipu", None),
    ] {
        let warnings = resolve(&format!("segments = [{place:?}]")).unwrap().warnings();
        assert_eq!(warnings.len(), usize::from(part.is_some()), "{place}: {warnings:?}");
        if let Some(part) = part {
            assert!(warnings[0].starts_with("--segments: ") && warnings[0].contains(part));
        }
    }
}

#[test]
fn urls_that_cannot_be_read_are_not_shown() {
    for name in ["remote-write", "otlp", "scrape"] {
        for url in ["ftp://u:fish@a/", "http://u:fi sh@a/", "u:fish@a", "http:///?fish", ""] {
            let error = resolve(&format!("{name} = [{url:?}]")).unwrap_err().to_string();
            let start = format!("cannot use --{name}: value 1: ");
            assert!(error.starts_with(&start) && error.contains("such as"), "{url}: {error}");
            assert!(!error.contains("fish") && !error.contains("sh@"), "{url}: {error}");
        }
    }
    let error = resolve("scrape = [\"unix:/a:/m?fish x\"]").unwrap_err().to_string();
    assert!(error.contains("value 1: ") && !error.contains("fish"), "{error}");
}

#[test]
fn a_file_with_an_unknown_setting_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("quipu.toml");
    for (text, part) in [
        ("windw = \"60s\"", "unknown field `windw`"),
        ("windw = \"60s\"", "did you mean `window`?"),
        ("hyperdrive = true", "line 1, column 1, which is not shown"),
        ("window = 60", "60 has no unit: write \"60s\" for seconds, in quotes"),
        ("window = true", "expected a time in quotes, such as \"60s\""),
        ("window = \"60 parsecs\"", "such as 200ms"),
        ("keys = \"many\"", "such as 4096, 10k, 1MB or 64MiB"),
        ("keys = true", "such as \"10k\" or \"64MiB\""),
        ("keys = -1", "-1 is negative"),
        ("statsd = [\"localhost:9125\"]", "udp://HOST:PORT"),
        ("graphite = [\"localhost:2003\"]", "tcp://HOST:PORT"),
        ("window", "quipu.toml"),
    ] {
        std::fs::write(&path, text).unwrap();
        let message = Flags::read(&path).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("quipu.toml"), "{message}");
    }
    let missing = Flags::read(&directory.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("name a TOML file"), "{missing}");
}

#[test]
fn all_switches_accept_the_same_values() {
    let names: Vec<String> = Line::command()
        .get_arguments()
        .filter(|a| a.get_value_names().is_some_and(|names| *names == ["SWITCH"]))
        .map(|argument| argument.get_long().unwrap().to_owned())
        .collect();
    assert!(names.len() >= 6, "{names:?}");
    let shown = |flags: Flags| flags.shown();
    for name in &names {
        let flag = format!("--{name}");
        for (line, value) in [
            (&[&*flag][..], "on"),
            (&[&flag, "--keys", "5"], "on"),
            (&[&flag, "on"], "on"),
            (&[&flag, "off"], "off"),
            (&[&flag, "true"], "on"),
            (&[&flag, "false"], "off"),
            (&[&format!("{flag}=on")], "on"),
            (&[&format!("{flag}=false")], "off"),
        ] {
            let line = ["quipu"].iter().chain(line);
            let matches = Line::command().try_get_matches_from(line.clone());
            let flags = Line::from_arg_matches(&matches.unwrap()).unwrap().flags;
            assert_eq!(shown(flags)[name], value, "{line:?}");
        }
        for (text, value) in [
            ("true", "on"),
            ("false", "off"),
            ("\"on\"", "on"),
            ("\"off\"", "off"),
            ("\"true\"", "on"),
            ("\"false\"", "off"),
        ] {
            let flags = Flags::from_settings(&format!("{name} = {text}")).unwrap();
            assert_eq!(shown(flags)[name], value, "{name} = {text}");
        }
        for text in ["1", "\"yes\"", "[\"on\"]"] {
            let error = Flags::from_settings(&format!("{name} = {text}")).unwrap_err();
            assert!(error.to_string().contains("\"on\" or \"off\""), "{error}");
        }
    }
    let error = Line::command().try_get_matches_from(["quipu", "--push", "yes"]).unwrap_err();
    assert!(error.to_string().contains("[possible values: on, off]"), "{error}");
}

#[test]
fn a_path_that_is_not_utf_8_is_used_and_not_shown() {
    use std::os::unix::ffi::OsStrExt;
    let mut flags = Flags::default();
    flags.state.state = Some(PathBuf::from(OsStr::from_bytes(b"/tmp/\xff")));
    let settings = Settings::resolve(flags).unwrap();
    assert_eq!(settings.state.as_os_str().as_bytes(), b"/tmp/\xff");
    assert!(settings.to_toml().unwrap_err().to_string().contains("UTF-8"));
}

#[test]
fn one_text_is_a_list_of_one() {
    let all = |form: fn(&str) -> String| {
        [
            ("listen", "127.0.0.1:1,unix:a"),
            ("allow-host", "*.a"),
            ("allow-origin", "http://a"),
            ("statsd", "udp://127.0.0.1:1"),
            ("graphite", "unix:/a,b"),
            ("push-add-jobs", "a*"),
            ("otlp-promote", "a.b"),
            ("segments", "/run/*.quipu"),
            ("segments-labels", "/run/{app}.quipu"),
            ("scrape", "a=http://a:1"),
            ("scrape-bearer-file", "a=f"),
            ("scrape-basic-file", "g"),
            ("remote-write", "http://a/w"),
            ("remote-write-header", "X: y"),
            ("otlp", "http://a"),
            ("otlp-header", "X: y"),
            ("otlp-resource", "k=v"),
            ("external-label", "k=v"),
        ]
        .map(|(name, value)| format!("{name} = {}\n", form(value)))
        .concat()
    };
    let one = Flags::from_settings(&all(|value| format!("{value:?}"))).unwrap();
    let list = Flags::from_settings(&all(|value| format!("[{value:?}]"))).unwrap();
    assert_eq!(one, list);
    assert_eq!(one.http.listen.unwrap(), ["127.0.0.1:1,unix:a"]);
    // The list contains all settings of this kind.
    let command = Line::command();
    let is_list =
        |a: &&clap::Arg| a.get_action().takes_values() && a.get_value_delimiter().is_some();
    assert_eq!(command.get_arguments().filter(is_list).count(), 18);
    for value in ["7", "true", "[7]", "{ a = 1 }"] {
        let error = Flags::from_settings(&format!("listen = {value}")).unwrap_err();
        assert!(error.to_string().contains("string"), "{error}");
    }
}

#[test]
fn a_line_that_may_have_a_secret_is_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("quipu.toml");
    let error = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let error = Flags::read(&path).unwrap_err();
        assert!(!format!("{error:?}").contains("fish"), "{text}: {error:?}");
        error.to_string()
    };
    for (text, part) in [
        ("keys = 1\nremote-write-header = [\"X-Key: swordfish]", "line 2, column "),
        ("remote-write-header = [\n\"X-Key: swordfish\n]", "line 2, column "),
        ("otlp-header = \"X-Key: swordfish", "line 1, column "),
        ("otlp-heder = [\"X-Key: swordfish\"]", "unknown field `otlp-heder`"),
        ("widnow = \"X-Key: swordfish\"", "did you mean `window`?"),
        ("widnow = \"60s\" # was: swordfish", "did you mean `window`?"),
        ("remote-write = http://u:swordfish@a/", "line 1, column "),
        ("scrape = [\"http://u:swordfish@a/\", 7]", "line 1, column "),
        ("scrape = { a = \"swordfish\" }", "a string, or an array of strings"),
        ("kays = \"swordfish\"", "did you mean `keys`?"),
        ("swordfish = 1", "unknown field: quipu serve --help lists the settings"),
        ("\"Bearer swordfish\" = 1", "unknown field: "),
        ("keys = \"none\" # was: swordfish", "line 1, column 8, which is not shown"),
        ("password: swordfish", "line 1, column "),
        ("listen = [\"a\", 7, { x = \"swordfish\" }]", "line 1, column "),
        ("swordfish", "line 1, column "),
    ] {
        let shown = error(text);
        assert!(shown.contains(part), "{text}: {shown}");
        assert!(!shown.contains("fish") && shown.contains("quipu.toml"), "{text}: {shown}");
    }
    // Other values are shown.
    for (text, part) in [
        ("keys = \"none\"", "1 | keys = \"none\""),
        ("\nwindow = \"60 parsecs\"", "2 | window = \"60 parsecs\""),
        ("push = \"yes\"", "1 | push = \"yes\""),
    ] {
        let shown = error(text);
        assert!(shown.contains(part), "{text}: {shown}");
    }
}

#[test]
fn outputs_that_contradict_each_other_are_refused() {
    const URL: &str = "remote-write = [\"http://a/w\"";
    for (toml, part) in [
        (format!("{URL}, \"http://a/w?x\"]"), "given twice"),
        ("external-label = [\"a=1\", \"a=2\"]".into(), "two values"),
        ("remote-write-bearer-file = \"f\"".into(), "no receiver; give one with --remote-write"),
        (
            format!("{URL}]\nremote-write-bearer-file = \"f\"\nremote-write-basic-file = \"f\""),
            "give one of them",
        ),
        ("remote-write-interval = \"1ms\"".into(), "give at least 100ms"),
        ("remote-write-queue-bytes = 1".into(), "give at least 4194304"),
        ("remote-write-shards = 0".into(), "0 is out of range; give 1 to 64"),
        ("remote-write-shards = 65".into(), "give 1 to 64"),
        ("otlp-interval = \"1ms\"".into(), "give at least 100ms"),
        ("otlp-resource = [\"a=1\", \"a=2\"]".into(), "the key a has two values"),
        (format!("otlp-resource = [\"a={}\"]", "x".repeat(65536)), "give at most 65536"),
        ("otlp = [\"http://a\", \"http://a/v1/metrics\"]".into(), "given twice"),
        (
            "otlp = [\"http://a\", \"http://b\"]\notlp-basic-file = \"f\"".into(),
            "--otlp-basic-file: it is for one receiver, and there are 2",
        ),
    ] {
        let error = resolve(&toml).unwrap_err().to_string();
        assert!(error.contains(part), "{toml}: {error}");
    }
}

#[test]
fn queues_are_next_to_the_state() {
    let queue = |toml: &str| resolve(toml).unwrap().outputs.queue.map(|queue| queue.directory);
    assert_eq!(queue("remote-write-queue = \"latest\""), None);
    let of_state = queue("remote-write-queue = \"disk\"\nstate = \"a/b.quipu\"");
    assert_eq!(of_state.unwrap(), PathBuf::from("a/b.quipu.queue"));
    let named = queue("remote-write-queue = \"disk\"\nremote-write-queue-directory = \"q\"");
    assert_eq!(named.unwrap(), PathBuf::from("q"));
}

#[test]
fn each_setting_has_a_heading() {
    for arg in Line::command().get_arguments().filter(|a| a.get_id() != "help") {
        assert!(arg.get_help_heading().is_some(), "{}", arg.get_id());
    }
}

#[test]
fn fields_are_checked_with_the_settings_and_not_shown() {
    const URL: &str = "remote-write = [\"http://a/w\"]\n";
    for (toml, part) in [
        ("remote-write-header = [\"x: fish\"]".into(), "give one with --remote-write"),
        (format!("{URL}remote-write-header = [\"x: 1\", \"fish\"]"), "value 2: it has no colon"),
        (
            format!("{URL}remote-write-header = [\"x: 1\", \"X: fish\"]"),
            "value 2: x is given twice",
        ),
        (format!("{URL}remote-write-header = [\"Host: fish\"]"), "a URL with that host"),
        (
            format!("{URL}remote-write-header = [\"Authorization: Fish fish\"]"),
            "--remote-write-bearer-file, --remote-write-basic-file, or, as a line authorization: \
             VALUE, with --remote-write-header-file",
        ),
        ("otlp-header-file = \"f\"".into(), "--otlp-header-file: there is no receiver; give one"),
        ("otlp = [\"http://a\", \"http://b\"]\notlp-header-file = \"f\"".into(), "there are 2"),
        ("otlp = [\"http://a\"]\notlp-header = [\"te: fish\"]".into(), "--otlp-header: value 1"),
    ] {
        let error = resolve(&toml).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains("fish"), "{toml}: {error}");
    }
    // You can give one header field to several receivers.
    let toml = "otlp = [\"http://a\", \"http://b\"]\notlp-header = [\"X-Tenant: fish\"]";
    let settings = resolve(toml).unwrap();
    assert_eq!(settings.outputs.otlp.headers.fields.len(), 1);
    let (shown, file) =
        (format!("{settings:?}{:?}", settings.flags.shown()), settings.to_toml().unwrap());
    assert!(!shown.contains("fish") && shown.contains("X-Tenant: <secret>"), "{shown}");
    assert!(file.contains("otlp-header = [\"X-Tenant: <secret>\"]"), "{file}");
    // The shown file is refused, because its placeholders must not be sent.
    let error = resolve(&file).unwrap_err();
    assert!(error.to_string().contains("x-tenant has no value"), "{error}");
}

/// Returns the table of the settings under a heading of the help.
fn table<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    let defaults: toml::Table = toml::from_str(&Flags::defaults().to_toml().unwrap()).unwrap();
    let mut table = "| flag | TOML type | default | meaning |\n|---|---|---|---|\n".to_owned();
    for argument in arguments {
        let name = argument.get_long().unwrap();
        let value = argument.get_value_names().unwrap()[0].as_str();
        let is_list = matches!(argument.get_action(), ArgAction::Append);
        let is_integer = Flags::from_settings(&format!("{name} = 1")).is_ok();
        let form = match (is_list, is_integer) {
            (true, _) => "array",
            (_, true) => "integer",
            _ => "string",
        };
        let help = argument.get_help().unwrap().to_string();
        let (help, default) = help.rsplit_once(" [default: ").unwrap();
        let default = default.strip_suffix(']').unwrap();
        let is_value = !matches!(default, "none") && defaults.contains_key(name);
        let default = if is_value { format!("`{default}`") } else { cell(default) };
        let mut meaning = cell(help);
        let are_listed = value != "SWITCH" && !argument.is_hide_possible_values_set();
        for value in argument.get_possible_values().iter().filter(|_| are_listed) {
            let help = value.get_help().unwrap().to_string();
            write!(meaning, ". `{}`: {}", value.get_name(), cell(help.trim_end_matches('.')))
                .unwrap();
        }
        writeln!(table, "| `--{name} {value}` | {form} | {default} | {meaning} |").unwrap();
    }
    table
}

/// Returns the variables of lists, by the separator of their values.
fn variables(command: &Command) -> String {
    let with = |separator| {
        let arguments = command.get_arguments();
        let arguments = arguments.filter(|a| a.get_value_delimiter() == Some(separator));
        let names = arguments.filter_map(|a| a.get_env()?.to_str());
        names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    };
    format!(
        "| variables of arrays | separator of the values |\n|---|---|\n| {} | comma |\n\
         | {} | line end, because the values can contain commas |\n",
        with(','),
        with('\n')
    )
}

#[test]
fn the_page_of_settings_is_current() {
    let command = Line::command();
    let mut headings: Vec<&str> = Vec::new();
    for argument in command.get_arguments().filter(|a| a.get_id() != "help") {
        let heading = argument.get_help_heading().unwrap();
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    let mut parts = vec![("variables".to_owned(), variables(&command))];
    for heading in headings {
        let arguments = command.get_arguments();
        let arguments = arguments.filter(|a| a.get_help_heading() == Some(heading));
        parts.push((heading.to_owned(), table(arguments)));
    }
    Page::read("configuration.md").expect(&parts);
}
