//! Pages in docs with generated parts, which tests compare with the program. A part stands between
//! the lines `<!-- generated: NAME -->` and `<!-- end -->`. `make pages-daemon` writes the parts.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// A page in docs/daemon.
pub(crate) struct Page {
    path: PathBuf,
    text: String,
}

/// The name of a part, and its Markdown.
pub(crate) type Part = (String, String);

impl Page {
    pub(crate) fn read(name: &str) -> Page {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/daemon");
        let path = PathBuf::from(docs).join(name);
        let text = fs::read_to_string(&path).unwrap();
        Page { path, text }
    }

    /// Returns whether the page contains exactly these parts.
    pub(crate) fn is_current(&self, parts: &[Part]) -> bool {
        self.with(parts).as_deref() == Ok(&*self.text)
    }

    /// Fails unless the page contains exactly these parts. With the variable `UPDATE_PAGES`, this
    /// writes them.
    #[track_caller]
    pub(crate) fn expect(&self, parts: &[Part]) {
        if self.is_current(parts) {
            return;
        }
        let current = self.with(parts).unwrap_or_else(|error| panic!("{error}"));
        if std::env::var_os("UPDATE_PAGES").is_some() {
            fs::write(&self.path, current).unwrap();
            return;
        }
        let mut stale = String::new();
        for line in current.lines().filter(|line| !self.text.lines().any(|other| other == *line)) {
            writeln!(stale, "+ {line}").unwrap();
        }
        for line in self.text.lines().filter(|line| !current.lines().any(|other| other == *line)) {
            writeln!(stale, "- {line}").unwrap();
        }
        panic!("{} is stale: run `make pages-daemon`\n{stale}", self.path.display());
    }

    /// Returns the page with these parts.
    fn with(&self, parts: &[Part]) -> Result<String, String> {
        let mut page = self.text.clone();
        let mut seen = 0;
        for (name, part) in parts {
            let start = format!("<!-- generated: {name} -->\n");
            let missing = || format!("{} needs the line {start}", self.path.display());
            let begin = page.find(&start).ok_or_else(missing)? + start.len();
            let length = page[begin..].find(END).ok_or_else(missing)?;
            page.replace_range(begin..begin + length, &format!("\n{part}\n"));
            seen += 1;
        }
        match page.matches("<!-- generated: ").count() == seen {
            true => Ok(page),
            false => Err(format!("{} has a part that does not exist", self.path.display())),
        }
    }
}

const END: &str = "<!-- end -->\n";

/// Formats text for a cell of a table. Words that look like code become code.
pub(crate) fn cell(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let code = word.trim_matches(['\'', '(', ')']).trim_end_matches([',', ';', ':', '.', ')']);
        let is_file_or_key = code.contains('.') && !code.starts_with(|c: char| c.is_ascii_digit());
        let is_code = code.starts_with("--")
            || code.starts_with('/')
            || code.contains(['_', '*', ':', '{', '}', '=', '<', '>', '[', ']', '^'])
            || is_file_or_key;
        if is_code { word.replacen(code, &format!("`{code}`"), 1) } else { word.to_owned() }
    });
    let text = words.collect::<Vec<_>>().join(" ").replace('|', "\\|");
    ["GET", "POST", "PUT"]
        .iter()
        .fold(text, |text, method| text.replace(&format!("{method} `/"), &format!("`{method} /")))
}
