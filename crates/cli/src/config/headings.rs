//! The parts of the help of `quipu serve`: each setting is under a heading.

use clap::Arg;

/// Puts a setting under its heading. What is none stays where it is.
pub(super) fn put(arg: Arg) -> Arg {
    match heading(arg.get_id().as_str()) {
        Some(heading) => arg.help_heading(heading),
        None => arg,
    }
}

/// The heading of a setting, by the name of its field.
fn heading(name: &str) -> Option<&'static str> {
    let (first, _) = name.split_once('_').unwrap_or((name, ""));
    Some(match name {
        "listen" | "allow_host" | "allow_origin" | "threads" | "connections" | "header_bytes"
        | "body_bytes" | "response_bytes" | "read_timeout" | "write_timeout" | "idle_timeout"
        | "drain_timeout" => "Listening",
        "window" | "accuracy" | "span" | "keys" | "key_accuracy" | "key_bytes" => {
            "Windows and keys"
        }
        "state" | "damaged_state" | "checkpoint" => "State",
        "rules"
        | "expiry"
        | "forget_names"
        | "input_body_bytes"
        | "input_bytes"
        | "series"
        | "series_per_source"
        | "sample_rate"
        | "sample_rate_per_source"
        | "families"
        | "families_per_source" => "Metrics that come in",
        "otlp_input" | "otlp_translation" | "otlp_promote" => "OTLP that comes in",
        "external_label" => "Sending",
        _ => match first {
            "push" => "Pushes",
            "statsd" | "graphite" => "StatsD and Graphite",
            "segments" => "Segments of other programs",
            "scrape" => "Scraping",
            "remote" | "otlp" => "Sending",
            "log" => "Log",
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command};

    use crate::config::Flags;

    #[test]
    fn each_setting_has_a_heading() {
        let command = Flags::augment_args(Command::new("quipu"));
        for arg in command.get_arguments() {
            assert!(arg.get_help_heading().is_some(), "{}", arg.get_id());
        }
    }
}
