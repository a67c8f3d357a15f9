//! A sink for the families of several paths. It omits a family whose name another path already
//! uses, because a scraper would reject the page.

use quipu::exposition::ShownNames;
use quipu::snapshot::{FamilyHeader, Kind, Series, Sink};
use quipu_segment::printable;

use quipu_sources::labels::{flaw, suffix};

/// Passes a family on only if no other path uses its names. Several families with the same name in
/// one path are variants with different labels. They are adjacent, and the formats show them
/// together.
pub(super) struct DedupSink<'a> {
    sink: &'a mut dyn Sink,
    /// The names of the command's own families: the family that this sink adds, and the families
    /// that the reader of directories adds.
    own: [ShownNames; 2],
    /// Whether the current path is a segment. Segments add no own family.
    is_segment: bool,
    /// The names that each path uses. The current path is the last one.
    shown: Vec<(String, ShownNames)>,
    /// The name and the type of the current path's last family, and whether it is omitted.
    last: Option<(String, Kind, bool)>,
    /// The first omitted names of the current path, each with the path that uses it.
    names: Vec<String>,
    /// The number of omitted families of the current path.
    omitted: usize,
    /// The number of omitted families of all paths.
    repeated: u64,
    /// Whether a scraper would reject the whole page because of the current family.
    is_refused: bool,
}

/// The maximum number of names in a warning.
const MAX_NAMES: usize = 5;

impl<'a> DedupSink<'a> {
    pub(super) fn new(sink: &'a mut dyn Sink) -> Self {
        let mut own: [ShownNames; 2] = Default::default();
        own[0].add(REPEATED.name, REPEATED.kind);
        DIRECTORY_FAMILIES.iter().for_each(|(name, kind)| own[1].add(name, *kind));
        Self {
            sink,
            own,
            is_segment: false,
            shown: Vec::new(),
            last: None,
            names: Vec::new(),
            omitted: 0,
            repeated: 0,
            is_refused: false,
        }
    }

    /// Begins a path: a segment, or several directories.
    pub(super) fn begin(&mut self, path: String, is_segment: bool) {
        self.is_segment = is_segment;
        self.shown.push((path, ShownNames::default()));
        self.names.clear();
        (self.last, self.omitted) = (None, 0);
    }

    /// Returns the current path and a warning about its omitted families, if any.
    pub(super) fn omitted_message(&self) -> Option<(&str, String)> {
        let (path, _) = self.shown.last().filter(|_| self.omitted > 0)?;
        let more = match self.omitted - self.names.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let message = format!(
            "{path}: families are omitted, since scrapers refuse their labels, or others that \
             come first have their names: {}{more}; expose each path alone, or rename one of two",
            self.names.join(", ")
        );
        Some((path, message))
    }

    /// Adds the family with the number of omitted families, if there were several paths or an
    /// omission.
    pub(super) fn end(self, are_several: bool) {
        if self.repeated > 0 || are_several {
            self.sink.begin(REPEATED, []).sample([], self.repeated);
        }
    }

    /// Counts an omitted family, and stores its name for the warning.
    fn omit(&mut self, family: &FamilyHeader<'_>, reason: &str) {
        (self.omitted, self.repeated) = (self.omitted + 1, self.repeated + 1);
        if self.names.len() < MAX_NAMES {
            let suffix = suffix(family.kind, family.bare);
            self.names.push(format!("{}{suffix} ({reason})", printable(family.name)));
        }
    }

    /// Returns the path that already uses one of the family's names.
    fn owner(&self, family: &FamilyHeader<'_>) -> Option<&str> {
        let is_taken = |names: &ShownNames| !names.are_free(family.name, family.kind);
        if is_taken(&self.own[0]) || self.is_segment && is_taken(&self.own[1]) {
            return Some("the command itself");
        }
        let mut shown = self.shown.iter();
        let owner = shown.find(|(_, names)| !names.are_free(family.name, family.kind));
        owner.map(|(path, _)| &**path)
    }

    fn is_omitted(&self) -> bool {
        self.is_refused || self.last.as_ref().is_some_and(|(.., is_omitted)| *is_omitted)
    }
}

impl Sink for DedupSink<'_> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        // We check the family, because a file can contain any name and any labels.
        let refused = flaw(family, &Vec::new());
        self.is_refused = refused.is_some();
        if let Some(reason) = refused {
            return self.omit(family, &reason);
        }
        let is_variant =
            |(name, kind, _): &(String, Kind, bool)| *name == family.name && *kind == family.kind;
        if !self.last.as_ref().is_some_and(is_variant) {
            let owner = self.owner(family).map(str::to_owned);
            self.last = Some((family.name.to_owned(), family.kind, owner.is_some()));
            if let Some(path) = owner {
                self.omit(family, &format!("first in {path}"));
            } else if let Some((_, names)) = self.shown.last_mut() {
                names.add(family.name, family.kind);
            }
        }
        if !self.is_omitted() {
            self.sink.family(family);
        }
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        if !self.is_omitted() {
            self.sink.series(family, series);
        }
    }
}

/// The families that the reader of directories adds. No family in a file can use their names.
const DIRECTORY_FAMILIES: [(&str, Kind); 3] = [
    ("quipu_scrape_files", Kind::Gauge),
    ("quipu_scrape_files_skipped", Kind::Counter),
    ("quipu_scrape_entries_skipped", Kind::Counter),
];

const REPEATED: FamilyHeader<'static> = FamilyHeader::new(
    Kind::Gauge,
    "quipu_scrape_families_repeated",
    "Families that are omitted, because another one that comes first has one of their names, or \
     scrapers refuse their labels.",
);

#[cfg(test)]
mod tests {
    use quipu::exposition::{Encoder, Escaping, Format};

    use super::*;

    #[test]
    fn a_family_that_scrapers_refuse_is_omitted_and_no_other_one() {
        let mut encoder = Encoder::new(Format::Text, Escaping::default());
        let mut sink = DedupSink::new(&mut encoder);
        sink.begin("app.quipu".into(), true);
        for (name, label) in [
            ("good", "a"),
            ("bad", "__name__"),
            ("b\nad", "a"),
            ("quipu_scrape_families_repeated", "a"),
            ("quipu_scrape_files_skipped_total", "a"),
            ("fine", "b"),
        ] {
            let sink: &mut dyn Sink = &mut sink;
            sink.gauge(name, "", [label]).sample(["v"], 1);
        }
        let (_, message) = sink.omitted_message().unwrap();
        assert!(
            message.contains("bad (a label of it cannot have the name \"__name__\")"),
            "{message}"
        );
        assert!(message.contains("line feed") && !message.contains('\n'), "{message}");
        assert!(
            message.contains("quipu_scrape_families_repeated (first in the command"),
            "{message}"
        );
        assert!(
            message.contains("quipu_scrape_files_skipped_total (first in the command"),
            "{message}"
        );
        sink.end(false);
        let text = String::from_utf8(encoder.buffer().to_vec()).unwrap();
        for (line, count) in [
            ("good{a=\"v\"} 1\n", 1),
            ("fine{b=\"v\"} 1\n", 1),
            ("bad", 0),
            ("# TYPE quipu_scrape_families_", 1),
            ("quipu_scrape_files_skipped", 0),
        ] {
            let shown = text.replace("repeated", "").matches(line).count();
            assert_eq!(shown, count, "{line}: {text}");
        }
    }
}
