//! Tests of `quipu top`: one frame, and live in a real terminal, which tmux provides.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quipu::label::Values;
use quipu::{CounterFamily, Description, Gauge, Histogram, HistogramFamily, Registry};

use super::Home;
use super::inspect::Holder;

/// The time limit of every wait. After it, the test fails.
const DEADLINE: Duration = Duration::from_secs(120);

/// A tmux server that runs the program in its only window, killed on drop.
pub(super) struct Tmux {
    socket: std::path::PathBuf,
}

impl Tmux {
    /// Runs `quipu top` in a window of 100 columns and 20 lines. A shell follows it.
    pub(super) fn start(home: &Home, arguments: &str) -> Self {
        Self::run_in(home, &format!("top {arguments}"))
    }

    /// Runs any command in such a window.
    pub(super) fn run_in(home: &Home, arguments: &str) -> Self {
        Self::run_through(home, "", arguments)
    }

    /// Runs any command with environment variables in such a window.
    fn run_through(home: &Home, variables: &str, arguments: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let tmux = Self { socket: home.directory().join(format!("tmux-{number}")) };
        let binary = env!("CARGO_BIN_EXE_quipu");
        // The shell shows the exit code, and whether the terminal was restored. The trap keeps the
        // shell alive when a key sends a signal. The command resets its signals, because it may
        // have inherited ignored ones.
        let script = format!(
            "trap : INT; {variables} env --default-signal '{binary}' {arguments}; echo \"ended with $?\"; stty -a; exec cat"
        );
        let size = ["-x", "100", "-y", "20"];
        let mut command = tmux.command(&["-f", "/dev/null", "new-session", "-d"]);
        command.args(size).arg(script).current_dir(home.directory()).env("LC_ALL", "C.UTF-8");
        let output = command.output().expect("tmux can be started: install it, make tools");
        assert!(output.status.success(), "{output:?}");
        tmux
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(&self.socket).args(arguments).env_remove("TMUX");
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    pub(super) fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen satisfies `is_so`, and returns it.
    pub(super) fn wait(&self, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.run(&["capture-pane", "-p"]);
            if is_so(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < DEADLINE, "{screen}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the screen with the escape sequences of its colors.
    pub(super) fn colored_screen(&self) -> String {
        self.run(&["capture-pane", "-e", "-p"])
    }

    /// Checks the output of `stty`: a terminal with echo and line mode.
    pub(super) fn is_as_before(&self) {
        let screen = self.wait_for("icanon");
        assert!(!screen.contains("-icanon") && !screen.contains("-echo "), "{screen}");
    }

    pub(super) fn wait_for(&self, text: &str) -> String {
        self.wait(|screen| screen.contains(text))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

/// If the terminal is closed, the program must not stay as a process without a terminal.
#[test]
fn the_program_ends_with_its_terminal() {
    let home = Home::new();
    let _application = Application::start(&home);
    let tmux = Tmux::start(&home, "app.quipu");
    tmux.wait_for("hits");
    let shell = tmux.run(&["display-message", "-p", "#{pane_pid}"]);
    let shell = shell.trim();
    let children = fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    let stat = format!("/proc/{}/stat", children.trim());
    assert!(fs::read_to_string(&stat).unwrap().contains("(quipu)"));
    drop(tmux);
    let begun = Instant::now();
    // Zombies count as ended, because a process without a waiting parent stays as a zombie.
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(begun.elapsed() < DEADLINE, "it outlives its terminal: {stat}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A segment with a counter, a gauge and a histogram.
struct Application {
    hits: CounterFamily<Values<'static>>,
    took: Histogram,
    _registry: Registry,
}

impl Application {
    fn start(home: &Home) -> Self {
        let registry = Registry::open(home.file()).unwrap();
        let hits = Description::new("hits", "Requests.").labels(["path", "code"]);
        let hits: CounterFamily<Values<'static>> = registry.register(hits).unwrap();
        registry.register::<Gauge>(Description::new("level", "Level.")).unwrap().set(2.5);
        let took = Description::new("took", "Seconds.").buckets([0.1, 1.0]);
        let took = registry.register(took).unwrap();
        let application = Self { hits, took, _registry: registry };
        application.work(1);
        application
    }

    fn work(&self, times: u64) {
        for _ in 0..times {
            self.hits.inc(&Values(&["/a", "200"]));
            self.hits.inc(&Values(&["/b", "500"]));
            self.took.observe(0.05);
        }
    }
}

/// Returns the words of the line that begins with this word.
pub(super) fn line<'t>(screen: &'t str, first: &str) -> Vec<&'t str> {
    let mut lines = screen.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find(|words| words.first() == Some(&first)).unwrap_or_default()
}

/// Sets a flag on drop, even if the test fails, because the scope would otherwise wait for a thread
/// forever.
struct AtEnd<'f>(&'f std::sync::atomic::AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn one_frame_has_rates() {
    let home = Home::new();
    let application = Application::start(&home);
    // The second look must see more events than the first one, whenever it happens.
    let stop = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                application.work(1);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let _stop = AtEnd(&stop);
        let holder = Holder::start(&home);
        let pid = holder.pid().to_string();
        for target in ["app.quipu", ".", &pid] {
            let frame = home.succeed(&["top", "--once", "--interval", "100ms", target]);
            let hits = line(&frame, "hits_total");
            assert_eq!(hits[1..3], ["counter", "2"], "{frame}");
            assert!(hits[3].parse::<f64>().unwrap() > 0.0, "{frame}");
            assert_eq!(line(&frame, "level")[3..5], ["-", "2.5"], "{frame}");
            assert!(line(&frame, "took")[3].parse::<f64>().unwrap() > 0.0, "{frame}");
        }
    });
    let some = ["top", "--once", "--interval", "10ms", "app.quipu"];
    let by = ["--family", "hits_total", "--by", "code", "--sort", "value"];
    let frame = home.succeed(&[&some[..], &by].concat());
    assert!(frame.contains("hits_total by code") && !line(&frame, "500").is_empty(), "{frame}");
    // You can select a counter without its suffix.
    let frame = home.succeed(&[&some[..], &["--family", "hits"]].concat());
    assert!(!line(&frame, "path=\"/b\",code=\"500\"").is_empty(), "{frame}");
    let frame = home.succeed(&[&some[..], &["--all", "--filter", "path=\"/b\""]].concat());
    assert!(!line(&frame, "hits_total{path=\"/b\",code=\"500\"}").is_empty(), "{frame}");
    assert!(!frame.contains("level") && !frame.contains("/a"), "{frame}");
    let frame = home.succeed(&[&some[..], &["--sort", "value", "--filter", "!level"]].concat());
    assert!(!line(&frame, "hits_total").is_empty() && !line(&frame, "took").is_empty(), "{frame}");
    let frame = home.succeed(&[&some[..], &["--rows", "1"]].concat());
    assert!(frame.contains("hits_total") && !frame.contains("level"), "{frame}");
}

#[test]
fn one_frame_as_json_has_the_items_of_the_list() {
    let home = Home::new();
    let application = Application::start(&home);
    let once = |arguments: &[&str]| -> serde_json::Value {
        let start = ["top", "--once", "--format", "json", "--interval", "10ms", "app.quipu"];
        serde_json::from_str(&home.succeed(&[&start[..], arguments].concat())).unwrap()
    };
    let frame = once(&[]);
    assert_eq!((&frame["families"], &frame["series"]), (&3.into(), &4.into()));
    assert_eq!(frame["problems"], serde_json::json!([]));
    let hits = serde_json::json!({
        "name": "hits_total", "type": "counter", "series": 2, "value": 2.0, "rate": 0.0,
    });
    assert_eq!(frame["items"][0], hits);
    assert_eq!(frame["items"][1]["rate"], serde_json::Value::Null);
    assert!(frame["items"][2]["p99"].is_number(), "{frame}");
    let frame = once(&["--family", "hits", "--rows", "1"]);
    let labels = serde_json::json!({"path": "/a", "code": "200"});
    assert_eq!(
        (&frame["items"][0]["labels"], &frame["items"][1]),
        (&labels, &serde_json::Value::Null)
    );
    home.refuse(&["top", "--format", "json", "app.quipu"], 2, &["--once"]);
    drop(application);
}

/// The series of a directory get the same labels as in the daemon.
#[test]
fn a_directory_is_shown_like_in_the_daemon() {
    let home = Home::new();
    let path = |name: &str| home.directory().join(name);
    fs::create_dir_all(path("run/web")).unwrap();
    for name in ["run/metrics.quipu", "run/web/1.quipu", "secret.quipu"] {
        home.succeed(&["inc", "--file", name, "jobs_total"]);
    }
    std::os::unix::fs::symlink(path("secret.quipu"), path("run/link.quipu")).unwrap();
    fs::write(path("run/new.quipu"), "").unwrap();
    fs::write(path("run/bad.quipu"), "text").unwrap();
    let arguments = ["top", "--once", "--interval", "10ms", "--all", "run"];
    let output = home.quipu(&arguments).output().unwrap();
    let frame = String::from_utf8(output.stdout).unwrap();
    for segment in ["metrics", "web/1"] {
        let series = format!("jobs_total{{segment=\"{segment}\"}}");
        assert_eq!(line(&frame, &series).get(1), Some(&"counter"), "{frame}");
    }
    assert_eq!(frame.matches("jobs_total{").count(), 2, "{frame}");
    // All readable files are shown, and the exit code reports the failures to scripts.
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors, "quipu: run/bad.quipu: it is not a segment\n");
    assert_eq!(output.status.code(), Some(3));
    assert!(!frame.contains("new.quipu"), "{frame}");
    fs::remove_file(path("run/bad.quipu")).unwrap();
    home.succeed(&arguments);
}

#[test]
fn the_mapped_file_of_a_process_is_shown() {
    let home = Home::new();
    home.succeed(&["inc", "--file", "app.quipu", "before_total"]);
    let holder = Holder::start(&home);
    let pid = holder.pid().to_string();
    let shows_its_own = || {
        let frame = home.succeed(&["top", "--once", "--interval", "10ms", &pid]);
        assert_eq!(line(&frame, "before_total").get(1), Some(&"counter"), "{frame}");
        assert!(!frame.contains("after_total"), "{frame}");
        let diff = home.succeed(&["diff", &pid, "app.quipu"]);
        assert!(diff.contains("before_total") && diff.contains("after_total"), "{diff}");
    };
    fs::rename(home.file(), home.directory().join("moved.quipu")).unwrap();
    home.succeed(&["inc", "--file", "app.quipu", "after_total"]);
    shows_its_own();
    fs::rename(home.directory().join("moved.quipu"), home.file()).unwrap();
    fs::remove_file(home.file()).unwrap();
    home.succeed(&["inc", "--file", "app.quipu", "after_total"]);
    shows_its_own();
}

#[test]
fn native_histograms_have_quantiles() {
    let home = Home::new();
    let registry = Registry::open(home.file()).unwrap();
    let about = Description::new("took", "Seconds.").native(5).labels(["path"]);
    let took: HistogramFamily<Values> = registry.register(about).unwrap();
    let alone: Histogram = registry.register(Description::new("alone", "").native(5)).unwrap();
    // Enough values for several tables, below and above zero.
    for i in 1..=1000 {
        took.observe(&Values(&["/a"]), f64::from(i) / 1000.0);
        took.observe(&Values(&["/b"]), f64::from(i) / 10.0);
        alone.observe(f64::from(i - 300));
    }
    let server = quipu::http::serve("127.0.0.1:0", &registry).unwrap();
    let url = format!("http://{}/metrics", server.local_addr());
    // Quantiles are accurate to the width of a bucket, at most 4.4 %, or more if many buckets are
    // in use.
    let is_near = |text: &str, expected: f64| {
        let value: f64 = text.trim_matches(['(', ')']).parse().unwrap();
        (value - expected).abs() <= 0.045 * expected.abs()
    };
    for target in ["app.quipu", &url] {
        let frame = home.succeed(&["top", "--once", "--interval", "10ms", "--all", target]);
        for (name, p50, p99) in [
            ("took{path=\"/a\"}", 0.5, 0.99),
            ("took{path=\"/b\"}", 50.0, 99.0),
            ("alone", 200.0, 690.0),
        ] {
            let words = line(&frame, name);
            assert_eq!(words[1..4], ["histogram", "0", "1000"], "{target}: {frame}");
            assert!(is_near(words[4], p50) && is_near(words[5], p99), "{target}: {frame}");
        }
        // The total over all series of the family: 1 of each is below 1, and half of /b is above
        // 50.
        let frame = home.succeed(&["top", "--once", "--interval", "10ms", target]);
        let words = line(&frame, "took");
        assert_eq!(words[1..5], ["histogram", "2", "0", "2000"], "{target}: {frame}");
        assert!(is_near(words[6], 98.0), "{target}: {frame}");
    }
    let diff = home.succeed(&["diff", "app.quipu", &url]);
    assert!(diff.contains("0 changed"), "{diff}");
}

#[test]
fn targets_that_cannot_be_read_are_errors() {
    let home = Home::new();
    let refuse = |target: &str, parts: &[&str]| {
        home.refuse(&["top", "--once", "--interval", "10ms", target], 1, parts);
    };
    refuse("none.quipu", &["none.quipu: No such file"]);
    refuse(".", &[".: it has no segments"]);
    refuse("https://127.0.0.1:1/", &["https://127.0.0.1:1/: connection refused"]);
    refuse("http://127.0.0.1:1/", &["http://127.0.0.1:1/: connection refused: is the server"]);
    refuse("127.0.0.1:1", &["http://127.0.0.1:1/metrics: connection refused: is the server"]);
    home.refuse(&["top", "--replay", "--once", "http://a"], 1, &["--replay reads a file"]);
    fs::write(home.file(), "no metrics {").unwrap();
    refuse("app.quipu", &["neither a segment nor an exposition"]);
    fs::remove_file(home.file()).unwrap();
    home.refuse(&["top", "app.quipu"], 1, &["not a terminal: use --once"]);
    for interval in ["0s", "1ms", "61m", "1d", "soon"] {
        let arguments = ["top", "--interval", interval, "x"];
        home.refuse(&arguments, 2, &["--interval <TIME>", interval]);
        home.refuse(&[&arguments[..], &["--once"]].concat(), 2, &["--interval <TIME>"]);
    }
    home.refuse(&["top", "--interval", "0s", "x"], 2, &["give 10ms to 1h"]);
    Application::start(&home);
    let family = ["top", "--once", "--interval", "10ms", "--family", "x", "app.quipu"];
    home.refuse(&family, 1, &["app.quipu: it has no family \"x\""]);
}

#[test]
fn a_terminal_shows_changes_and_is_restored() {
    let home = Home::new();
    let application = Application::start(&home);
    let tmux = Tmux::start(&home, "--interval 100ms app.quipu");
    tmux.wait_for("3 families  4 series");
    application.work(1000);
    let screen = tmux.wait(|screen| line(screen, "hits_total").contains(&"2002"));
    assert!(screen.starts_with("quipu top  app.quipu"), "{screen}");
    // A rate is shown only while there are new events.
    let begun = Instant::now();
    tmux.wait(|screen| {
        application.work(10);
        assert!(begun.elapsed() < DEADLINE);
        line(screen, "hits_total").get(3).is_some_and(|rate| !["-", "0"].contains(rate))
    });
    tmux.press(&["Enter"]);
    tmux.wait_for("path=\"/a\",code=\"200\"");
    tmux.press(&["b"]);
    tmux.wait_for("hits_total by path");
    tmux.press(&["Enter"]);
    tmux.wait_for("hits_total > path=\"/a\"");
    tmux.press(&["Escape"]);
    tmux.wait(|screen| !screen.contains('>'));
    tmux.press(&["Escape"]);
    tmux.wait_for("level");
    // A filter hides other families while you type it.
    tmux.press(&["f", "t", "o", "o", "k"]);
    tmux.wait(|screen| screen.contains("filter: took_") && !screen.contains("level"));
    tmux.press(&["Enter", "Enter"]);
    let page = tmux.wait_for("observations");
    assert!(page.contains("mean 0.05"), "{page}");
    // If the file vanishes, the page stays and shows the reason.
    fs::rename(home.file(), home.directory().join("elsewhere")).unwrap();
    let page = tmux.wait_for("app.quipu: No such file");
    assert!(page.contains("observations"), "{page}");
    // A truncated file, and a file of another kind.
    for bytes in [&b"quipu"[..], &fs::read(home.directory().join("elsewhere")).unwrap()[..5000]] {
        fs::write(home.file(), bytes).unwrap();
        tmux.wait(|screen| screen.contains("truncated: "));
    }
    fs::rename(home.directory().join("elsewhere"), home.file()).unwrap();
    tmux.wait(|screen| !screen.contains("truncated"));
    tmux.press(&["q"]);
    tmux.wait_for("ended with 0");
    tmux.is_as_before();
}

#[test]
fn a_signal_restores_the_terminal() {
    let home = Home::new();
    let _application = Application::start(&home);
    let tmux = Tmux::start(&home, "app.quipu");
    tmux.wait_for("4 series");
    let shell: u32 = tmux.run(&["display-message", "-p", "#{pane_pid}"]).trim().parse().unwrap();
    let children = format!("/proc/{shell}/task/{shell}/children");
    let pid = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    tmux.wait_for("ended with 143");
    tmux.is_as_before();
}

/// A server cannot occupy the program with an endless response.
#[test]
fn an_endless_response_is_aborted() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/metrics", listener.local_addr().unwrap());
    let endless = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        // Send lines until the reader gives up.
        while stream.write_all(&b"a 1\n".repeat(1 << 14)).is_ok() {}
    });
    let output = home.quipu(&["top", "--once", &url]).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let is_bounded = ["more than 256 MiB", "no complete response within 10s"];
    assert!(is_bounded.iter().any(|part| errors.contains(part)), "{errors}");
    assert_eq!(output.status.code(), Some(1));
    endless.join().unwrap();
}

#[test]
fn a_url_without_a_path_gets_the_path_of_metrics() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let commands =
        [&["top", "--once", &*url][..], &["diff", &url, &url], &["check", "metrics", &url]];
    let server = thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), [0; 4096]);
            let length = stream.read(&mut request).unwrap();
            if length == 0 {
                return;
            }
            assert!(request[..length].starts_with(b"GET /metrics HTTP/1.1"));
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n";
            let body = "connection: close\r\n\r\n# HELP jobs Jobs.\n# TYPE jobs gauge\njobs 7\n";
            stream.write_all([head, body].concat().as_bytes()).unwrap();
        }
    });
    let [top, diff, check] = commands.map(|arguments| home.succeed(arguments));
    assert!(top.contains("jobs"), "{top}");
    assert!(diff.contains("1 the same"), "{diff}");
    assert!(check.contains("families: 1"), "{check}");
    drop(TcpStream::connect(&url["http://".len()..]).unwrap());
    server.join().unwrap();
}

#[test]
fn a_server_that_hangs_is_a_line_on_the_screen() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let tmux = Tmux::start(&home, &format!("--interval 100ms http://{address}/metrics"));
    let accept = || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).unwrap();
        stream
    };
    // The server hangs, but keys still work.
    let hanging = accept();
    tmux.wait_for("waiting for the first sample");
    tmux.press(&["?"]);
    tmux.wait_for("remove the filter");
    tmux.press(&["Escape"]);
    drop(hanging);
    tmux.wait_for(&format!("http://{address}/metrics: "));
    let reply = |body: &str| format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}");
    accept().write_all(reply("# TYPE a counter\na_total 7\n").as_bytes()).unwrap();
    tmux.wait_for("1 family  1 series");
    accept().write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").unwrap();
    tmux.wait_for("the response is 404");
    accept().write_all(reply("# TYPE a counter\na_total 7\nb{\n").as_bytes()).unwrap();
    tmux.wait_for("line 3");
    tmux.press(&["q"]);
    tmux.wait_for("ended with 0");
}

#[test]
fn a_terminal_without_a_screen_is_refused_with_the_way_out() {
    let home = Home::new();
    let _application = Application::start(&home);
    let tmux = Tmux::run_through(&home, "TERM=dumb", "top app.quipu");
    let screen = tmux.wait_for("ended with 1");
    assert!(screen.contains("(TERM=dumb): use --once"), "{screen}");
    drop(tmux);
    let tmux = Tmux::run_through(&home, "TERM=dumb", "top --once app.quipu");
    let screen = tmux.wait_for("ended with 0");
    assert!(screen.contains("hits_total"), "{screen}");
}
