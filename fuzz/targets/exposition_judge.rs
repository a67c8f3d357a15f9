//! Asks Prometheus' parsers for a verdict on pages. The parsers run in a Go program that responds
//! in the order of the requests.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A page with its content type, and the samples of well-behaved senders that it must contain.
pub type Page = (String, Vec<u8>, Vec<&'static str>);

struct Judge {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _child: Child,
    /// The faults saved so far.
    saved: HashSet<String>,
}

thread_local! {
    static JUDGE: RefCell<Judge> = RefCell::new(Judge::start());
}

/// Panics with the first fault of these pages.
pub fn check(program: &[u8], pages: &[Page]) {
    JUDGE.with_borrow_mut(|judge| {
        for (content_type, page, fair) in pages {
            let verdict = judge.ask(content_type, page);
            let Some(fault) = fault(&verdict, fair) else { continue };
            judge.report(program, content_type, page, &fault);
        }
    });
}

/// Returns the fault in a verdict on a page, if there is one.
fn fault(verdict: &str, fair: &[&str]) -> Option<String> {
    let mut parts = verdict.split('\t');
    if parts.next() != Some("ok") {
        return Some(verdict.to_owned());
    }
    // The escaping `dots` doubles underscores.
    let found: HashSet<String> = parts.map(|sample| sample.replace("__", "_")).collect();
    let missing = fair.iter().find(|sample| !found.contains(**sample))?;
    Some(format!("missing: {missing}"))
}

impl Judge {
    fn start() -> Self {
        let path = std::env::var_os("EXPOSITION_JUDGE").expect(
            "EXPOSITION_JUDGE must name the program that parses: `make fuzz/exposition` builds it \
             and sets the variable",
        );
        let mut command = Command::new(&path);
        command.arg("-verdicts").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| {
            panic!("cannot start {}, which EXPOSITION_JUDGE names: {error}", path.display())
        });
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let input = input.expect("a pipe");
        let output = BufReader::new(output.expect("a pipe"));
        Self { input, output, _child: child, saved: HashSet::new() }
    }

    fn ask(&mut self, content_type: &str, page: &[u8]) -> String {
        let mut request = Vec::with_capacity(page.len() + 200);
        for field in [content_type.as_bytes(), page] {
            request.extend_from_slice(&(field.len() as u32).to_le_bytes());
            request.extend_from_slice(field);
        }
        self.input.write_all(&request).expect("the judge reads");
        let mut verdict = String::new();
        self.output.read_line(&mut verdict).expect("the judge responds");
        assert!(verdict.ends_with('\n'), "the judge ended");
        verdict.pop();
        verdict
    }

    fn report(&mut self, program: &[u8], content_type: &str, page: &[u8], fault: &str) {
        let text = String::from_utf8_lossy(page);
        let Some(directory) = std::env::var_os("EXPOSITION_FAULTS") else {
            panic!("{content_type}: {fault}\n{text}");
        };
        let kind = kind(content_type, fault);
        if self.saved.insert(kind.clone()) {
            let path = std::path::Path::new(&directory).join(&kind);
            let report = format!("{content_type}\n{fault}\n{text}");
            let saved = std::fs::write(path.with_extension("txt"), report)
                .and_then(|()| std::fs::write(path.with_extension("input"), program));
            saved.expect("EXPOSITION_FAULTS is a directory");
        }
    }
}

/// Returns a name for faults of the same kind: the format, and the words of the message outside of
/// quotes.
fn kind(content_type: &str, fault: &str) -> String {
    let mut is_quoted = false;
    let mut words = String::new();
    for character in fault.chars().take(200) {
        match character {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            'a'..='z' | 'A'..='Z' => words.push(character),
            _ if !words.ends_with('_') => words.push('_'),
            _ => {}
        }
    }
    let format: String = content_type
        .split(';')
        .filter(|part| !part.contains("charset"))
        .flat_map(|part| part.chars())
        .filter(|character| character.is_ascii_alphanumeric())
        .collect();
    words.truncate(70);
    format!("{format}-{words}")
}
