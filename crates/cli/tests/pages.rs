//! Runs the shell examples of README.md and of the pages in docs/, and compares their output with
//! the output on the page. A block that cannot run has the comment `<!-- not run: REASON -->` on
//! the line before. If the output differs in each run, the comment is `<!-- output varies -->`, and
//! the commands need only succeed.
//!
//! The addresses 127.0.0.1 and localhost become the test's own loopback address, and paths such as
//! /run/app.quipu become paths in a directory of the test, so the ports and files of the pages need
//! no other substitution.

#![allow(clippy::unwrap_used, reason = "functions of tests may fail by panicking")]

#[allow(dead_code, unused_imports, reason = "the test of the daemon uses the other functions")]
mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{Daemon, Home, poll};

/// The directories of the pages' examples, which become directories of the test.
const DIRECTORIES: [&str; 6] =
    ["/tmp/", "/run/", "/srv/", "/usr/local/", "/etc/bash_completion.d/", "~/"];

/// Commands that create the files and daemons that a page assumes. A page without an entry needs
/// none.
const SETUPS: [(&str, &str); 9] = [
    ("docs/cli/count.md", "mkdir -p run tmp"),
    (
        "docs/cli/index.md",
        "mkdir -p run etc/bash_completion.d usr/local/share/zsh/site-functions \
         usr/local/share/man/man1 .config/fish/completions",
    ),
    (
        "docs/cli/inspect.md",
        "mkdir run; quipu inc --file run/app.quipu 'jobs_total{queue=\"mail\"}' 3",
    ),
    (
        "docs/cli/top-and-diff.md",
        "mkdir run; quipu inc --file run/app.quipu 'http_requests_total{code=\"200\"}'",
    ),
    (
        "docs/coming-from.md",
        "mkdir -p run/quipu; echo 'mappings: []' > mapping.yml; echo 'aggregations: []' > rules.yml; \
         echo 'backups_total 1' > backup.prom",
    ),
    ("docs/daemon/in/messages.md", "printf 'Counter\\t-\\t61\\t1\\t-\\t-\\n' > stream.tsv"),
    ("docs/daemon/in/statsd.md", "mkdir run"),
    ("docs/daemon/scrape-targets.md", "mkdir -p run/secrets; echo ada:secret > run/secrets/node"),
    ("docs/daemon/watch-segments.md", "mkdir -p run/quipu srv"),
];

/// Functions that stand for programs which a machine may lack.
const FUNCTIONS: &str = r#"
nc() {
    local protocol=tcp
    while [[ $1 == -* ]]; do [[ $1 == -u ]] && protocol=udp; shift; done
    cat >"/dev/$protocol/$1/$2"
}
"#;

/// A fenced block of a page.
struct Block {
    page: String,
    line: usize,
    language: String,
    text: String,
    is_varying: bool,
    is_skipped: bool,
}

impl Block {
    fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    fn is_shell(&self) -> bool {
        let is_prompt = |line: &str| line.starts_with("$ ");
        matches!(self.language.as_str(), "" | "console" | "sh") && self.text.lines().any(is_prompt)
    }
}

#[test]
fn the_examples_of_the_pages_run() {
    let (mut ran, mut skipped) = (0, 0);
    let mut failures = Vec::new();
    for page in pages() {
        let blocks = blocks(&page);
        skipped += blocks.iter().filter(|block| block.is_skipped).count();
        let mut session = None;
        for block in blocks.iter().filter(|block| !block.is_skipped) {
            let result = match block.language.as_str() {
                _ if block.is_shell() => {
                    session.get_or_insert_with(|| Session::new(&block.page)).run(block)
                }
                "toml" => session.get_or_insert_with(|| Session::new(&block.page)).check(block),
                "yaml" => serde_saphyr::from_str::<serde_json::Value>(&block.text)
                    .map(drop)
                    .map_err(|error| error.to_string()),
                // The documentation tests of the library run these blocks.
                "rust" | "rust,no_run" if block.page == "README.md" => continue,
                // The tests of the bindings run these.
                "python" | "ruby" => continue,
                // Blocks without a prompt show no commands.
                "text" | "" => continue,
                other => Err(format!("no test runs {other:?}: add a comment with the reason")),
            };
            ran += 1;
            if let Err(failure) = result {
                failures.push(format!("{}: {failure}", block.place()));
            }
        }
    }
    println!("{ran} blocks ran, {skipped} are marked with a reason");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(ran > 40, "only {ran} blocks ran");
}

/// The files, daemons and settings of one page.
struct Session {
    home: Home,
    daemons: Vec<Daemon>,
    exports: String,
}

impl Session {
    fn new(page: &str) -> Session {
        let session = Session { home: Home::new(), daemons: Vec::new(), exports: String::new() };
        if let Some((_, setup)) = SETUPS.iter().find(|(name, _)| *name == page) {
            let output = session.shell(setup);
            assert!(output.status.success(), "the setup of {page} failed: {output:?}");
        }
        session
    }

    /// Checks settings by `quipu check config`.
    fn check(&mut self, block: &Block) -> Result<(), String> {
        fs::write(self.home.path("quipu.toml"), &block.text).unwrap();
        let output = self.shell("quipu check config quipu.toml");
        if output.status.success() { Ok(()) } else { Err(format!("{output:?}")) }
    }

    fn run(&mut self, block: &Block) -> Result<(), String> {
        for (command, expected) in examples(&block.text) {
            let (command, expected) = (self.localized(&command), self.localized(&expected));
            // Without a terminal, this command shows its screen once.
            let is_screen = command.starts_with("quipu top") && !command.contains("--once");
            let command = if is_screen { format!("{command} --once") } else { command };
            if command.starts_with("export ") {
                self.exports.push_str(&format!("{command}\n"));
            } else if command.starts_with("quipu serve") && !command.contains("--check-config") {
                self.serve(&command)?;
            } else {
                self.expect(&command, if block.is_varying { "" } else { &expected })?;
            }
        }
        Ok(())
    }

    /// Starts the daemon of the command in place of the previous one.
    fn serve(&mut self, command: &str) -> Result<(), String> {
        self.daemons.drain(..).for_each(Daemon::stop);
        let listen = format!(" --listen {}:8081", self.home.host());
        let listen = if command.contains("--listen") { "" } else { &listen };
        let program = self.bash(&format!("exec {command}{listen} --log-format json"));
        let daemon = self.home.spawn(program);
        if !daemon.starts() {
            return Err(format!("{command}: {}", daemon.wait().stderr));
        }
        self.daemons.push(daemon);
        Ok(())
    }

    /// Runs a command. Compares its output, except if nothing is expected.
    fn expect(&mut self, command: &str, expected: &str) -> Result<(), String> {
        // Commands that use the daemon of the page get one without options.
        let address = format!("{}:8081", self.home.host());
        if (command.contains(&address) || command.contains("state.quipu"))
            && self.daemons.is_empty()
        {
            self.serve("quipu serve")?;
        }
        let is_error =
            ["quipu: ", "error: ", "text: "].iter().any(|start| expected.starts_with(start));
        let mut last = None;
        let mut attempt = || {
            let output = self.shell(command);
            let mut printed = String::from_utf8_lossy(&output.stdout).into_owned();
            if is_error {
                printed.push_str(&String::from_utf8_lossy(&output.stderr));
            }
            let is_same = expected.is_empty() || begins_with(&printed, expected);
            let is_good = is_same && output.status.success() != is_error;
            last =
                Some(format!("$ {command}\nexpected: {expected}\nprinted: {printed}\n{output:?}"));
            is_good.then_some(())
        };
        // The daemon shows datagrams, segments and scrapes a moment after they were sent.
        let done = if command.starts_with("curl -s ") { poll(attempt) } else { attempt() };
        done.ok_or_else(|| last.unwrap())
    }

    fn shell(&self, command: &str) -> Output {
        self.bash(command).output().unwrap()
    }

    fn bash(&self, command: &str) -> Command {
        let binaries = Path::new(env!("CARGO_BIN_EXE_quipu")).parent().unwrap();
        let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
        let mut program = Command::new("bash");
        program.args(["-o", "pipefail", "-c", &format!("{FUNCTIONS}{}{command}", self.exports)]);
        program.current_dir(self.home.directory()).env("PATH", path).stdin(Stdio::null());
        program.env("HOME", self.home.directory());
        program
    }

    /// Replaces the hosts and paths of a page with the test's own.
    fn localized(&self, text: &str) -> String {
        let (host, directory) = (self.home.host(), self.home.directory().display());
        let mut text = text.replace("127.0.0.1", host).replace("localhost", host);
        for before in [" :", "//:"] {
            let start = before.trim_end_matches(':');
            text = text.replace(before, &format!("{start}{host}:"));
        }
        for name in DIRECTORIES {
            let path = name.trim_start_matches('~');
            for before in [" ", "=", ":", "'", ">", "\n"] {
                text =
                    text.replace(&format!("{before}{name}"), &format!("{before}{directory}{path}"));
            }
        }
        text
    }
}

/// Splits a block into its commands and the output that follows each.
fn examples(text: &str) -> Vec<(String, String)> {
    let mut examples: Vec<(String, String)> = Vec::new();
    let mut is_continued = false;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            examples.push((command.to_owned(), String::new()));
        } else {
            let (command, output) = examples.last_mut().unwrap();
            let more = line.strip_prefix("> ").or(is_continued.then_some(line));
            match more {
                Some(more) => command.extend(["\n", more]),
                None => {
                    output.extend([line, "\n"]);
                    continue;
                }
            }
        }
        let (command, _) = examples.last().unwrap();
        let is_loop = command.starts_with("for ") && !command.ends_with("done");
        is_continued = is_loop || command.ends_with(['|', '\\']);
    }
    examples
}

/// Returns whether an output begins with the words of a page. The width of the terminal decides the
/// line breaks.
fn begins_with(printed: &str, expected: &str) -> bool {
    let mut printed = printed.split_whitespace();
    expected.split_whitespace().all(|word| printed.next() == Some(word))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the paths of all pages, sorted.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    let mut directories = vec![root().join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// Returns the fenced blocks of a page.
fn blocks(path: &Path) -> Vec<Block> {
    let page = path.strip_prefix(root()).unwrap().display().to_string();
    let text = fs::read_to_string(path).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let (mut is_open, mut before) = (false, "");
    for (index, line) in text.lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            is_open = !is_open;
            if is_open {
                blocks.push(Block {
                    page: page.clone(),
                    line: index + 1,
                    language: language.to_owned(),
                    text: String::new(),
                    is_varying: before == "<!-- output varies -->",
                    is_skipped: before.starts_with("<!-- not run: "),
                });
            }
        } else if is_open {
            blocks.last_mut().unwrap().text.extend([line, "\n"]);
        }
        before = line;
    }
    blocks
}
