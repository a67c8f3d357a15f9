//! The picture of `quipu top` in the README: a real terminal, rendered as SVG. `UPDATE_PAGES=1`
//! writes it.

use std::fs;
use std::path::Path;

use quipu::label::Values;
use quipu::{CounterFamily, Description, Gauge, Histogram, Registry};
use quipu_segment::history::Options;

use super::Home;
use super::top::Tmux;

const SECOND: u64 = 1_000_000_000;
/// The time of the first tick: 2023-11-14T22:13:20Z.
const START: u64 = 1_700_000_000;

/// Records two minutes of a shop. Its traffic rises and falls, and one minute before the end, the
/// payments begin to fail.
fn record(home: &Home) {
    let registry = Registry::open(home.file()).unwrap();
    let family = |name, help, labels: [&'static str; 2]| -> CounterFamily<Values> {
        registry.register(Description::new(name, help).labels(labels)).unwrap()
    };
    let requests = family("http_requests", "Requests.", ["method", "code"]);
    let orders = family("orders", "Orders.", ["country", "payment"]);
    let bytes = registry.counter("http_response_bytes", "Bytes of responses.").unwrap();
    let emails = registry.counter("emails_sent", "Emails.").unwrap();
    let gauge = |name: &str, help: &str| -> Gauge {
        registry.register(Description::new(name, help)).unwrap()
    };
    let (depth, workers) = (gauge("queue_jobs", "Waiting."), gauge("workers_busy", "Busy."));
    let took = Description::new("http_request_duration", "Duration.").unit("seconds");
    let took: Histogram = registry.register(took).unwrap();
    let mut recorder = Options::new().bytes(256 << 10).open(registry.segment()).unwrap();
    for tick in 0..120 {
        let wave = (f64::from(tick) / 9.0).sin() + 2.0 + f64::from(tick * 37 % 11) / 20.0;
        let fails = tick >= 60;
        let count = (wave * 100.0) as u64;
        requests.inc_by(&Values(&["GET", "200"]), count);
        requests.inc_by(&Values(&["POST", "200"]), if fails { 2 } else { count / 10 });
        requests.inc_by(&Values(&["POST", "502"]), if fails { count / 10 } else { 0 });
        orders.inc_by(&Values(&["de", "card"]), if fails { 0 } else { count / 40 });
        orders.inc_by(&Values(&["fr", "invoice"]), count / 60);
        bytes.inc_by(count * 14_700);
        emails.inc_by(if fails { 0 } else { count / 40 });
        depth.set(if fails { f64::from(tick - 60) * 3.0 } else { 2.0 });
        workers.set((wave * 4.0).round());
        for _ in 0..count / 10 {
            took.observe(if fails { 0.3 } else { 0.012 });
        }
        let time = (START + tick as u64) * SECOND;
        assert!(recorder.tick_at(time, time).unwrap());
    }
}

/// Returns the text of an SVG, without its markup.
fn text(svg: &str) -> String {
    let parts = svg.split('<').filter_map(|part| part.split_once('>'));
    parts.map(|(_, text)| text).collect()
}

#[test]
fn the_picture_of_top_is_current() {
    let home = Home::new();
    record(&home);
    let tmux = Tmux::start(&home, "--color always --replay --sort rate app.quipu");
    tmux.wait_for("workers_busy");
    let screen = tmux.colored_screen();
    let svg = anstyle_svg::Term::new().render_svg(&screen);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli/top.svg");
    if std::env::var_os("UPDATE_PAGES").is_some() {
        fs::write(&path, svg).unwrap();
        return;
    }
    // Other versions of tmux can write the same colors in another order.
    let current = fs::read_to_string(&path).unwrap_or_default();
    assert!(text(&current) == text(&svg), "{path:?} is stale: run `make pages-daemon`\n{screen}");
}
