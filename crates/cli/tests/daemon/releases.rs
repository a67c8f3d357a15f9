//! Checks that this version reads the files of all released versions, or refuses them with the way
//! out.
//!
//! Each folder of `tests/releases` contains the files that a release wrote, compressed, and the
//! text that this release showed for them. Before a release with another layout of a file, add a
//! folder: `cargo test -p quipu-cli --test daemon -- --ignored releases::write_samples`. Never
//! rewrite the folder of a version that was released.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quipu::label::Values;
use quipu::{
    CounterFamily, Description, Gauge, Histogram, Info, MixedCounter, ProcessGauge,
    RecordingOptions, Registry, StateSet, Summary,
};
use quipu_window::{BucketedWindow, ExactWindow, SlidingWindow};

use crate::common::{Daemon, Home, wait_until};
use crate::outputs::{Receiver, Reply};

/// The address in the receiver's URL, which is a part of a queue on the disk. No [`Home`] uses it.
const RECEIVER: (&str, u16) = ("127.62.0.1", 18_094);
const RECEIVER_URL: &str = "http://127.62.0.1:18094/api/v1/write";

const WINDOW: Duration = Duration::from_secs(60);
const EVENTS: u64 = 17;

/// Messages in the format `tsv`: the largest counter, an empty id, a negative zero.
const MESSAGES: &str = "\
MetricUnion\t1\t68697473\t9223372036854775807\t\t0000000000000000
MetricUnion\t-128\t\t0\t3ff0000000000000,c008000000000000\t8000000000000000
";

fn releases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases");
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

fn read(release: &Path, name: &str) -> Vec<u8> {
    let compressed = fs::read(release.join(format!("{name}.zst"))).unwrap();
    zstd::decode_all(&compressed[..]).unwrap()
}

fn write(release: &Path, name: &str, bytes: &[u8]) {
    let compressed = zstd::encode_all(bytes, 19).unwrap();
    fs::write(release.join(format!("{name}.zst")), compressed).unwrap();
}

/// Returns the samples of an exposition, sorted, without the metrics of quipu itself, and without
/// quantiles, because they are those of the last minutes.
fn samples(text: &str) -> String {
    let is_sample = |line: &&str| !line.starts_with('#') && !line.starts_with("quipu_");
    let lines = text.lines().filter(is_sample).filter(|line| !line.contains("{quantile="));
    let mut lines: Vec<_> = lines.map(|line| format!("{line}\n")).collect();
    lines.sort();
    lines.concat()
}

fn scraped(daemon: &Daemon) -> String {
    samples(&daemon.scrape("text/plain").text())
}

fn queue_flags() -> [&'static str; 6] {
    [
        "--remote-write",
        RECEIVER_URL,
        "--remote-write-interval",
        "1s",
        "--remote-write-queue",
        "disk",
    ]
}

/// Runs a command in a home. Returns its standard output, or what it printed about the error.
fn run(home: &Home, arguments: &[&str]) -> Result<String, String> {
    let mut command = home.command();
    command.args(arguments);
    let ended = home.finish(command);
    if ended.status.success() { Ok(ended.stdout) } else { Err(ended.stderr) }
}

/// Checks that an error names the version of a file, and the versions that this program reads.
fn expect_way_out(release: &Path, error: &str) {
    assert!(error.contains("version") && error.contains("reads only"), "{release:?}: {error}");
    assert_ne!(release.file_name().unwrap(), env!("CARGO_PKG_VERSION"), "{error}");
}

#[test]
fn segments_of_each_release_are_read_or_refused_with_the_way_out() {
    for release in releases() {
        let home = Home::new();
        fs::write(home.path("app.quipu"), read(&release, "app.quipu")).unwrap();
        match run(&home, &["expose", "app.quipu"]) {
            Ok(text) => {
                let expected = String::from_utf8(read(&release, "app.txt")).unwrap();
                assert_eq!(samples(&text), expected, "{release:?}");
                // A program continues to count in this file.
                let registry = Registry::open(home.path("app.quipu")).unwrap();
                register(&registry);
                assert_eq!(registry.value("hits_total", &[("page", "/")]), Some(12.0));
                let history = run(&home, &["inspect", "--history", "app.quipu"]).unwrap();
                assert!(history.contains("hits_total"), "{release:?}: {history}");
            }
            Err(error) => expect_way_out(&release, &error),
        }
    }
}

#[test]
fn the_state_and_queue_of_each_release_are_read_or_refused_with_the_way_out() {
    for release in releases() {
        let home = Home::new();
        fs::write(home.state(), read(&release, "state.quipu")).unwrap();
        let queue = home.path(&String::from_utf8(read(&release, "queue.path")).unwrap());
        fs::create_dir_all(queue.parent().unwrap()).unwrap();
        fs::write(queue.with_file_name("receiver"), RECEIVER_URL).unwrap();
        fs::write(&queue, read(&release, "queue")).unwrap();
        let daemon = home.launch(&queue_flags());
        if !daemon.starts() {
            expect_way_out(&release, &daemon.log().concat());
            continue;
        }
        let expected = String::from_utf8(read(&release, "state.txt")).unwrap();
        assert_eq!(scraped(&daemon), expected, "{release:?}");
        let receiver = Receiver::bind(RECEIVER, |_, _| Reply::Taken);
        for total in [5.0, 7.0] {
            wait_until("the queue at the receiver", || {
                receiver.see(|requests| {
                    let mut samples = requests.iter().flat_map(|request| &request.samples);
                    samples.any(|sample| {
                        sample.series.starts_with("saved_total") && sample.value == total
                    })
                })
            });
        }
        daemon.stop();
    }
}

#[test]
fn windows_and_messages_of_each_release_are_read() {
    for release in releases() {
        let mut exact = ExactWindow::new(WINDOW).unwrap();
        let report = exact.load(&mut &read(&release, "exact.bin")[..]).unwrap();
        assert_eq!(report.counted + report.expired, EVENTS, "{release:?}");
        let mut bucketed = BucketedWindow::new(WINDOW, WINDOW / 60).unwrap();
        let report = bucketed.load(&mut &read(&release, "bucketed.json")[..]).unwrap();
        assert_eq!(report.counted + report.expired, EVENTS, "{release:?}");

        let home = Home::new();
        for format in ["quipu", "quipu-compact"] {
            fs::write(home.path(format), read(&release, &format!("messages.{format}"))).unwrap();
            let convert = ["messages", "convert", "--from", format, "--to", "tsv", format];
            assert_eq!(run(&home, &convert).unwrap(), MESSAGES, "{release:?}, {format}");
        }
    }
}

/// Registers one family of each kind.
fn register(registry: &Registry) -> (CounterFamily<Values<'static>>, Histogram, Summary) {
    let hits = Description::new("hits", "Hits.").labels(["page"]);
    let took = Description::new("took_seconds", "Duration.").buckets([0.5, 2.0]);
    (
        registry.register(hits).unwrap(),
        registry.register(took).unwrap(),
        registry.register(Description::new("sizes", "Sizes.")).unwrap(),
    )
}

#[test]
#[ignore = "writes the samples of a release"]
fn write_samples() {
    let release = Path::new(env!("CARGO_MANIFEST_DIR"));
    let release = release.join("tests/releases").join(env!("CARGO_PKG_VERSION"));
    fs::create_dir_all(&release).unwrap();
    let home = Home::new();

    let registry = Registry::open(home.path("app.quipu")).unwrap();
    let recording = registry.record(&RecordingOptions::new()).unwrap();
    let (hits, took, sizes) = register(&registry);
    hits.inc_by(&Values(&["/"]), 12);
    hits.inc(&Values(&["/cart é\"\\\n"]));
    [0.1, 1.0, 7.0].iter().for_each(|&value| took.observe(value));
    [1.0, 2.0].iter().for_each(|&value| sizes.observe(value));
    let named = |name: &str| Description::new(name, "Help.");
    registry.register::<MixedCounter>(named("bytes")).unwrap().inc_by(2.5);
    registry.register::<Gauge>(named("level")).unwrap().set(-1.5);
    registry.register::<ProcessGauge>(named("each")).unwrap().set(2.0);
    let build: quipu::Family<Info, Values> =
        registry.register(named("build").labels(["version"])).unwrap();
    let _build = build.bind(&Values(&["1.2"]));
    let mode: StateSet<&str> = registry.register(named("mode").states(["on", "off"])).unwrap();
    mode.set(&"off");
    // The recording writes once a second.
    std::thread::sleep(Duration::from_secs(3));
    drop((recording, registry));
    let text = run(&home, &["expose", "app.quipu"]).unwrap();
    write(&release, "app.quipu", &fs::read(home.path("app.quipu")).unwrap());
    write(&release, "app.txt", samples(&text).as_bytes());

    let daemon = home.start(&queue_flags());
    for increment in [5, 2] {
        let body = format!("# TYPE saved_total counter\nsaved_total {increment}\n");
        daemon.post_body("/metrics/job/backup?mode=add", &[], body.as_bytes());
        let queued = format!("quipu_remote_write_queue_requests{{receiver=\"{RECEIVER_URL}\"}}");
        let before = daemon.sample(&queued);
        wait_until("a request in the queue", || daemon.sample(&queued) >= before + 2.0);
    }
    write(&release, "state.txt", scraped(&daemon).as_bytes());
    daemon.stop();
    write(&release, "state.quipu", &fs::read(home.state()).unwrap());
    let folder = fs::read_dir(home.path("state.quipu.queue")).unwrap().next().unwrap().unwrap();
    let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|end| end == "queue")).collect();
    let [queue] = &files[..] else { panic!("{files:?}") };
    write(&release, "queue", &fs::read(queue).unwrap());
    let path = queue.strip_prefix(home.directory()).unwrap();
    write(&release, "queue.path", path.as_os_str().as_encoded_bytes());

    let exact = ExactWindow::new(WINDOW).unwrap();
    let bucketed = BucketedWindow::new(WINDOW, WINDOW / 60).unwrap();
    for (window, name) in
        [(&exact as &dyn SlidingWindow, "exact.bin"), (&bucketed, "bucketed.json")]
    {
        let mut bytes = Vec::new();
        window.add(EVENTS);
        window.save(&mut bytes).unwrap();
        write(&release, name, &bytes);
    }
    fs::write(home.path("messages.tsv"), MESSAGES).unwrap();
    for format in ["quipu", "quipu-compact"] {
        let to = ["messages", "convert", "--from", "tsv", "--to", format, "-o", format];
        run(&home, &[&to[..], &["messages.tsv"]].concat()).unwrap();
        write(&release, &format!("messages.{format}"), &fs::read(home.path(format)).unwrap());
    }
}
