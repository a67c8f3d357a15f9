//! Tests of the state that a scraper keeps from one scrape to the next.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use quipu::Registry;
use quipu::exposition::{Encoder, Escaping, Format};

use super::super::merged::MergedFamilies;
use super::super::walk::PageWalk;
use super::*;

/// Creates a scraper of a target that sends these responses, one after the other.
fn scraper(responses: Vec<String>) -> Scraper {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for response in responses {
            let (mut stream, _) = listener.accept().unwrap();
            let head = BufReader::new(stream.try_clone().unwrap()).lines();
            assert!(head.map(Result::unwrap).any(|line| line.is_empty()));
            // Ignore a write error, because the scraper can close the connection early.
            let _ = stream.write_all(response.as_bytes());
        }
    });
    let options = Options {
        targets: vec![target.parse().unwrap()],
        timeout: Duration::from_secs(60),
        body_bytes: 1000,
        samples: 100,
        ..Options::default()
    };
    let Options { timeout, body_bytes, .. } = options;
    Scraper {
        number: 0,
        fetcher: Fetcher::new(None, tls::without_trust(), timeout, body_bytes),
        shared: Arc::new(Shared {
            options,
            slots: vec![Mutex::default()],
            is_stopping: Mutex::new(false),
            stopped: Condvar::new(),
            turns: Turns::default(),
        }),
        hash: SeededState::default(),
        before: None,
        shape: None,
        form: None,
        faults: Vec::new(),
    }
}

/// Returns the page of one target.
fn shown(snapshot: Arc<SourceSnapshot>) -> String {
    let own = Registry::new();
    let merged = Arc::new(MergedFamilies::merge(&own, vec![snapshot]));
    let mut all = PageWalk::over(&own, &merged, &[]).unwrap();
    let mut encoder = Encoder::new(Format::Text, Escaping::default());
    while all.step_own(&mut encoder, |_| true) {}
    while all.step_rest(&mut encoder, |_| true) {}
    encoder.finish();
    String::from_utf8(encoder.buffer().to_vec()).unwrap()
}

/// Builds a response. You can make its body shorter than its `Content-Length` announces.
fn response(status: &str, text: &str, missing: usize) -> String {
    let length = text.len() + missing;
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{text}")
}

#[test]
fn a_form_is_used_again_and_not_after_a_failure() {
    /// The expected outcome of a scrape.
    #[derive(Clone, Copy, PartialEq)]
    enum Outcome {
        /// The whole exposition is read, and this number of its samples belongs to new series.
        Whole(u64),
        /// The exposition has the form of the previous one.
        Known,
        Failed,
    }
    use Outcome::{Failed, Known, Whole};
    let text = |n: usize, more: &str| {
        format!(
            "# TYPE level gauge\nlevel{{a=\"1\"}} {n}\n{more}# TYPE hits_total counter\nhits_total {n}.5\n"
        )
    };
    let ok = |n: usize| response("200 OK", &text(n, ""), 0);
    let fault = |_: usize| response("500 Fault", "level{a=\"1\"} 0\n", 0);
    let cut = |n: usize| response("200 OK", &text(n, ""), 1);
    let unreadable = |n: usize| response("200 OK", &text(n, "level{\n"), 0);
    let more = |n: usize| response("200 OK", &text(n, "level{a=\"2\"} 1\n"), 0);
    let steps: [(&dyn Fn(usize) -> String, Outcome); 18] = [
        (&ok, Whole(2)),
        // The form is kept from here on, because this exposition has the same shape as the previous
        // one.
        (&ok, Whole(0)),
        (&ok, Known),
        (&ok, Known),
        (&fault, Failed),
        (&ok, Whole(0)),
        (&ok, Known),
        (&cut, Failed),
        (&cut, Failed),
        (&ok, Whole(0)),
        (&ok, Known),
        (&unreadable, Failed),
        (&ok, Whole(0)),
        (&ok, Known),
        (&more, Whole(1)),
        (&ok, Whole(0)),
        (&ok, Whole(0)),
        (&ok, Known),
    ];
    let responses = steps.iter().enumerate().map(|(n, (respond, _))| respond(n)).collect();
    let mut scraper = scraper(responses);
    for (n, (_, expected)) in steps.into_iter().enumerate() {
        let (is_known, slot) = match scraper.fetch(Instant::now()) {
            Ok((bytes, body)) => (body.identities.is_none(), scraper.taken(bytes, body, 0.0)),
            Err(fault) => (false, scraper.failed(fault, 0.0)),
        };
        let Slot { report: Some(report), snapshot } = slot else { panic!("no report of {n}") };
        let (up, added) = match expected {
            Whole(added) => (true, added),
            Known => (true, 0),
            Failed => (false, 0),
        };
        let found = (report.up, report.added, is_known, snapshot.is_some());
        assert_eq!(found, (up, added, expected == Known, up), "{n}");
        let Some(snapshot) = snapshot else {
            assert!(scraper.form.is_none(), "{n}");
            continue;
        };
        let shown = shown(snapshot);
        for (start, end) in
            [("level{", format!(",a=\"1\"}} {n}")), ("hits_total{", format!(" {n}.5"))]
        {
            let mut lines = shown.lines();
            let is_there = lines.any(|line| line.starts_with(start) && line.ends_with(&end));
            assert!(is_there, "{n}: {shown}");
        }
    }
}

#[test]
fn the_time_limit_of_a_scrape_includes_the_reading_of_the_response() {
    let text: String = (0..90).map(|n| format!("a{n} 1\n")).collect();
    let mut scraper = scraper(vec![response("200 OK", &text, 0); 2]);
    let begun = Instant::now().checked_sub(scraper.shared.options.timeout).unwrap();
    let fault = scraper.fetch(begun).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout);
    assert!(fault.message.contains("not read within 1m"), "{}", fault.message);
    assert_eq!(scraper.fetch(Instant::now()).unwrap().1.samples, 90);
}

#[test]
fn each_kind_of_fault_is_logged_once_until_a_scrape_succeeds() {
    use FaultKind::{Contents, Exchange, Status};
    // The message contains the length, so these two faults differ in their messages.
    let long = |n: usize| format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "a".repeat(70_000 + n));
    let line = |text: &str| response("200 OK", text, 0);
    let mut responses = vec![long(0), long(1000), line("a{\n"), line("\nb{\n"), long(0)];
    responses.extend((500..520).map(|status| response(&format!("{status} Fault"), "", 0)));
    responses.push(line("a 1\n"));
    let mut scraper = scraper(responses);
    let mut faults = |count| {
        (0..count).for_each(|_| scraper.scrape());
        scraper.faults.clone()
    };
    assert_eq!(faults(2), [Exchange]);
    assert_eq!(faults(3), [Exchange, Contents]);
    let all = faults(20);
    assert_eq!((all.len(), all[2]), (MAX_FAULTS, Status(500)));
    assert_eq!(faults(1), []);
}
