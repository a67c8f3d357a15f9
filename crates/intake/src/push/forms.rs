//! A parse cache for the bodies of pushes. Instances of one program push the same lines again and
//! again, and only the values differ. The cache therefore stores the result of parsing one body,
//! and reuses it for all bodies that differ only in values.
//!
//! The common part of such bodies is called their *form*. Two text bodies share a form if their
//! bytes without the values are equal (a [`Template`]), and if their groups use the same label
//! names. Their families, their series, and the assignment of values to series are then equal, too.
//! For a body with a cached form, we therefore only compare bytes and parse the values. A body with
//! a syntax error is parsed again without the cache, because only the full parser reports the
//! reason.
//!
//! There are two lookups. First, we guess that the body shares the form of the last body with the
//! same beginning, and compare it with this form, which also contains the positions of the values.
//! If the guess is wrong, we search for the values, and look up the form by the hash of all other
//! bytes.
//!
//! A form does not belong to a group; for example, 10,000 groups of one program share one form. A
//! form is cached after the second body with this form. The cache is limited in bytes, and drops
//! the least recently used forms.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use quipu_segment::hash::SeededState;
use quipu_wire::remote::exposition::text::Template;

use super::builder::{ContentBuilder, PushError};
use super::content::{Content, PushFamilies, Values};
use super::parse::read_text;
use super::path::Grouping;
use super::spots::Destination;

/// The cache of forms, shared by all threads.
#[derive(Debug)]
pub(super) struct BodyFormCache {
    hashes: SeededState,
    table: Mutex<Table>,
}

/// The forms by the hash of all bytes except the values, in two generations. A lookup that hits the
/// older generation moves the form to the newer one. When the newer generation is full, it becomes
/// the older one. A body with `None` is known to have no form, and is parsed without the cache.
#[derive(Debug)]
struct Table {
    newer: HashMap<u64, Option<Arc<BodyForm>>, SeededState>,
    older: HashMap<u64, Option<Arc<BodyForm>>, SeededState>,
    /// The approximate size of the newer generation in bytes.
    bytes: usize,
    /// A hash table without chains: the hashes of bodies that were pushed once, each at the index
    /// that its value determines.
    once: Box<[u64]>,
    /// The hash of the last body for each beginning of a body: see [`BodyFormCache::place`].
    last: Box<[u64]>,
}

/// The result of parsing one body, without its values.
#[derive(Debug)]
pub(super) struct BodyForm {
    /// A unique identifier, never reused by this process.
    number: u64,
    /// The label names of the groups that can use this form.
    names: Box<[Box<str>]>,
    template: Template,
    families: Arc<PushFamilies>,
    /// A model of the values: each number is the index of a value in the body, starting at 1; 0
    /// means that the body contains no such value.
    values: Values,
    /// The families of the values; empty until the first push of this form has created its series.
    destinations: OnceLock<Box<[Destination]>>,
}

impl BodyFormCache {
    /// Returns the content of a body in Prometheus' format if the body shares the form of the last
    /// body with this beginning. Returns `None` if the guess is wrong; [`BodyFormCache::read`] may
    /// still find another form.
    pub(super) fn guess(&self, body: &[u8], grouping: &Grouping) -> Option<Content> {
        let form = self.table().last(self.place(body))?;
        form.content(body, grouping)
    }

    /// Parses a whole body in Prometheus' format, or uses its cached form. Caches the form if the
    /// same body, apart from its values, was parsed before.
    ///
    /// # Errors
    /// Returns a [`PushError`] for an invalid body.
    pub(super) fn read(
        &self,
        body: &[u8],
        builder: &mut ContentBuilder,
    ) -> Result<Content, PushError> {
        let values = str::from_utf8(body).ok().and_then(Template::values).unwrap_or_default();
        if values.is_empty() || has_fewer_labels(builder.grouping()) {
            return read_text(body, builder, false);
        }
        let hash = self.hash(body, &values, builder.grouping());
        let form = self.table().find(hash, self.place(body));
        if let Some(content) = form.and_then(|form| form.content(body, builder.grouping())) {
            return Ok(content);
        }
        let mut content = read_text(body, builder, false)?;
        if self.table().is_repeated(hash) {
            content.form = BodyForm::from_body(body, &values, &content, builder).map(Arc::new);
            self.table().insert(hash, content.form.clone());
        }
        Ok(content)
    }

    /// Returns the hash of a body without its values, combined with the label names of its group.
    fn hash(&self, body: &[u8], values: &[Range<usize>], grouping: &Grouping) -> u64 {
        let mut hasher = self.hashes.build_hasher();
        grouping.labels().for_each(|(name, _)| name.hash(&mut hasher));
        Template::parts(body, values).for_each(|part| hasher.write(part));
        hasher.finish()
    }

    /// Returns the index in [`Table::last`] for bodies with this beginning.
    fn place(&self, body: &[u8]) -> usize {
        // The remainder fits into `usize`.
        (self.hashes.hash_one(&body[..body.len().min(BEGINNING)]) % BEGINNINGS as u64) as usize
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A poisoned mutex is fine, because the table is consistent between any two changes.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for BodyFormCache {
    fn default() -> Self {
        let table = Table {
            newer: HashMap::default(),
            older: HashMap::default(),
            bytes: 0,
            once: vec![0; ONCE].into(),
            last: vec![0; BEGINNINGS].into(),
        };
        Self { hashes: SeededState::default(), table: Mutex::new(table) }
    }
}

/// Returns whether an empty `instance` in the path makes the group's labels fewer than the path's.
fn has_fewer_labels(grouping: &Grouping) -> bool {
    grouping.value("instance").is_some_and(str::is_empty)
}

impl Table {
    /// Returns the form with this hash, and stores it as the last form for this beginning.
    fn find(&mut self, hash: u64, place: usize) -> Option<Arc<BodyForm>> {
        self.last[place] = hash;
        self.used(hash)
    }

    /// Returns the last form for this beginning.
    fn last(&mut self, place: usize) -> Option<Arc<BodyForm>> {
        self.used(self.last[place])
    }

    /// Returns the form with this hash, and marks it as recently used.
    fn used(&mut self, hash: u64) -> Option<Arc<BodyForm>> {
        if let Some(form) = self.newer.get(&hash) {
            return form.clone();
        }
        let form = self.older.remove(&hash)?;
        self.insert(hash, form.clone());
        form
    }

    fn insert(&mut self, hash: u64, form: Option<Arc<BodyForm>>) {
        if self.bytes >= MAX_BYTES {
            self.older = mem::take(&mut self.newer);
            self.bytes = 0;
        }
        self.bytes += form.as_ref().map_or(size_of::<BodyForm>(), |form| form.bytes());
        self.newer.insert(hash, form);
    }

    /// Returns whether a body with this hash was parsed before without caching its form. Stores the
    /// hash.
    fn is_repeated(&mut self, hash: u64) -> bool {
        if self.newer.contains_key(&hash) || self.older.contains_key(&hash) {
            return false;
        }
        // The remainder fits into `usize`.
        let place = &mut self.once[(hash % ONCE as u64) as usize];
        mem::replace(place, hash) == hash
    }
}

/// The maximum size of one generation, approximately, in bytes.
const MAX_BYTES: usize = if cfg!(test) { 1 << 20 } else { 16 << 20 };
/// The number of hashes of bodies that were pushed once. If a sender rotates through many more
/// forms, most are never cached. This is intended, because caching a form that is dropped before
/// its next use wastes time.
const ONCE: usize = 4096;
/// The number of beginnings for which the last form is stored.
const BEGINNINGS: usize = 64;
/// The length of the beginning of a body in bytes. This covers a part of the first line.
const BEGINNING: usize = 64;

impl BodyForm {
    /// Creates the form of a parsed body, with values at these positions. Returns `None` if such
    /// bodies must always be parsed.
    ///
    /// This parses the body again, with the numbers 1, 2, 3, ... in place of its values, so each
    /// number in the result shows which value belongs there. This works because the parser only
    /// validates and stores values. If the parser did more with some values, the result would
    /// contain a number that is not in the list, or a number twice.
    fn from_body(
        body: &[u8],
        at: &[Range<usize>],
        content: &Content,
        builder: &ContentBuilder,
    ) -> Option<Self> {
        let mut again = ContentBuilder::new(builder.grouping().clone(), builder.limits());
        let Content { families, values, .. } = read_text(body, &mut again, true).ok()?;
        let mut seen = vec![false; at.len() + 1];
        values.with_numbers(&families, |number| {
            // The cast saturates.
            let whole = number as usize;
            let seen = seen.get_mut(whole).filter(|_| whole as f64 == number)?;
            (!mem::replace(seen, whole > 0)).then_some(number)
        })?;
        let template = Template::new(body, at);
        let has_start = values.series.iter().any(|value| value.start.is_some());
        // A value that is not a number was part of a label.
        let is_usable = !has_start && template.read(body, |_| {});
        (is_usable && families.is_same(&content.families)).then(|| Self {
            number: next_number(),
            names: builder.grouping().labels().map(|(name, _)| name.into()).collect(),
            template,
            families: Arc::clone(&content.families),
            values,
            destinations: OnceLock::new(),
        })
    }

    /// Returns the content of a push of a body with this form. Returns `None` if the body has
    /// another form, or if a value is unreadable or impossible.
    fn content(self: Arc<Self>, body: &[u8], grouping: &Grouping) -> Option<Content> {
        let names = grouping.labels().map(|(name, _)| name);
        if !names.eq(self.names.iter().map(|name| &**name)) || has_fewer_labels(grouping) {
            return None;
        }
        let mut numbers = Vec::with_capacity(1 + self.template.count());
        numbers.push(0.0);
        if !self.template.read(body, |number| numbers.push(number)) {
            return None;
        }
        // The position numbers are whole.
        let number = |place: f64| numbers.get(place as usize).copied();
        let values = self.values.with_numbers(&self.families, number)?;
        let (job, families) = (grouping.job().to_owned(), Arc::clone(&self.families));
        Some(Content { job, families, values, form: Some(self) })
    }

    /// Returns the unique identifier of the form.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the families of the values; empty before [`BodyForm::set_destinations`].
    pub(super) fn destinations(&self) -> &[Destination] {
        self.destinations.get().map_or(&[], |destinations| destinations)
    }

    /// Stores the families of the values. Later calls have no effect.
    pub(super) fn set_destinations(&self, destinations: Vec<Destination>) {
        self.destinations.get_or_init(|| destinations.into());
    }

    /// Returns the approximate size in bytes.
    fn bytes(&self) -> usize {
        let values = self.values.series.len() + self.values.points.len();
        size_of::<Self>() + 4 * self.template.len() + 256 * values
    }
}

fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use quipu::intake::Limits;

    use super::*;

    fn grouping(path: &str) -> Grouping {
        Grouping::parse(path).unwrap()
    }

    fn builder(path: &str) -> ContentBuilder {
        ContentBuilder::new(grouping(path), &Limits::default())
    }

    /// Reads a body in the usual way.
    fn read(path: &str, body: &str) -> Result<Content, PushError> {
        read_text(body.as_bytes(), &mut builder(path), false)
    }

    /// Returns the values of all series.
    fn shown(content: &Content) -> Vec<String> {
        let families = content.families.iter();
        let kinds = families.flat_map(|family| vec![family.kind; family.series.len()]);
        let show =
            |(kind, value)| content.values.with_input_value(kind, value, |it| format!("{it:?}"));
        kinds.zip(&content.values.series).map(show).collect()
    }

    impl BodyFormCache {
        /// Returns the content of a body by its form, if this is known.
        fn recall(&self, path: &str, body: &str) -> Option<Content> {
            // Only the previous body decides whether the form can be guessed.
            let guess = self.guess(body.as_bytes(), &grouping(path));
            let found = self.read(body.as_bytes(), &mut builder(path));
            let found = found.ok().filter(|content| content.form.is_some());
            let values = |content: Content| (format!("{:?}", content.values), content.job);
            let again = self.guess(body.as_bytes(), &grouping(path)).map(values);
            assert_eq!(again.is_some(), found.is_some(), "{body}");
            assert!(guess.is_none() || guess.map(values) == again, "{body}");
            found
        }

        /// Reads a body. Returns whether it has a form.
        fn learn_from(&self, path: &str, body: &str) -> bool {
            let read = self.read(body.as_bytes(), &mut builder(path));
            read.is_ok_and(|content| content.form.is_some())
        }
    }

    const PATH: &str = "job/j/zone/z";
    const BODY: &str = "# HELP c Of c, 1.\n# TYPE c counter\nc{a=\"x y\",zone=\"no\"} @\n c{a=\"\\n\"}\t@\n\n\
        # TYPE g gauge\ng @\n# TYPE h histogram\nh_bucket{le=\"1\"} @\nh_bucket{le=\"+Inf\"} @\n\
        h_sum @\nh_count @\n# TYPE i histogram\ni_bucket{b=\"1\",le=\"1\"} @\ni_count{b=\"1\"} @\n\
        u{a=\"}\"} @\n# TYPE s summary\ns{quantile=\"0.5\"} @\ns_sum @\ns_count @\n\
        push_time_seconds @\ng{a=\"1\"} @\n# the end 5\nlast @";

    /// Returns the body with these values, repeated.
    fn with(values: &[&str]) -> String {
        let mut parts = BODY.split('@');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.zip(values.iter().cycle()).fold(first, |text, (part, value)| text + *value + part)
    }

    #[test]
    fn a_body_of_a_known_form_has_the_same_content_as_by_the_long_way() {
        let forms = BodyFormCache::default();
        assert!(!forms.learn_from(PATH, &with(&["1"])), "it came once");
        assert!(forms.learn_from(PATH, &with(&["0"])));
        let numbers = ["0", "1", "2.50", "-1", "+7", "NaN", "+Inf", "-Inf", "1e3", "1e400", "0x1"];
        let others = ["", "x", "5 ", "1 2", "\u{e9}", "}", "1\r", "9007199254740993", ".5", "-0"];
        let (mut known, mut unknown) = (0, 0);
        for at in 0..BODY.matches('@').count() {
            for value in numbers.into_iter().chain(others) {
                let mut values = ["3"; 32];
                values[at] = value;
                let body = with(&values);
                let Some(content) = forms.recall(PATH, &body) else {
                    unknown += 1;
                    continue;
                };
                let expected = read(PATH, &body).unwrap();
                assert_eq!(shown(&content), shown(&expected), "{body}");
                assert_eq!(content.job, expected.job);
                assert!(content.families.is_same(&expected.families));
                known += 1;
            }
        }
        assert!(known > 100 && unknown > 100, "{known} {unknown}");
    }

    #[test]
    fn other_bodies_and_groups_have_other_forms() {
        let forms = BodyFormCache::default();
        let body = "# TYPE x gauge\nx{a=\"1\"} 1\n";
        for _ in 0..2 {
            forms.learn_from("job/j/zone/z", body);
        }
        let is_known = |path: &str, body: &str| forms.recall(path, body).is_some();
        assert!(is_known("job/k/zone/y", body));
        for path in ["job/j", "job/j/a/z", "job/j/zone/z/a/1", "job/j/zone/z/instance@base64/="] {
            assert!(!is_known(path, body), "{path}");
        }
        for end in 0..body.len() - 2 {
            assert!(!is_known("job/j/zone/z", &body[..end]), "{end}");
        }
        for (part, other) in [("gauge", "counter"), ("1\"", "2\""), ("x{", "y{"), ("} ", "}  ")] {
            assert!(!is_known("job/j/zone/z", &body.replace(part, other)), "{part}");
        }
        assert!(!is_known("job/j/zone/z", &[body, "x 1\n"].concat()));
    }

    #[test]
    fn bodies_that_begin_alike_have_their_own_forms() {
        let forms = BodyFormCache::default();
        let help = "what x is ".repeat(BEGINNING / 10 + 1);
        let bodies = ["y", "z"].map(|name| format!("# HELP x {help}\nx 1\n{name} 2\n"));
        for body in bodies.iter().flat_map(|body| [body; 2]) {
            forms.learn_from("job/j", body);
        }
        for body in bodies.iter().cycle().take(5) {
            assert!(forms.recall("job/j", body).is_some(), "{body}");
        }
        // Only the form of the last body is guessed.
        let is_guessed = |body: &str| forms.guess(body.as_bytes(), &grouping("job/j")).is_some();
        assert_eq!(bodies.each_ref().map(|body| is_guessed(body)), [true, false]);
    }

    #[test]
    fn bodies_whose_content_depends_on_values_have_no_form() {
        let forms = BodyFormCache::default();
        for (body, has_form) in [
            ("x 1\n", true),
            ("# TYPE h histogram\nh_count 3\nh_sum 4\n", true),
            ("# TYPE s summary\ns_sum 4\n", true),
            ("# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_count 3\n", true),
            // The count is the count of the last bucket, unless it is smaller.
            ("# TYPE h histogram\nh_count 3\nh_bucket{le=\"1\"} 2\n", false),
            ("# TYPE h histogram\nh_bucket{le=\"1\"} 2\n", false),
            ("# TYPE h histogram\nh_bucket{le=\"+Inf\"} 3\nh_bucket{le=\"1\"} 2\n", false),
            ("# TYPE h histogram\nh_count 3\nh_created 4\n", false),
            ("x{a=\"1 2\"}3\n", false),
            ("x 1\nx 2\n", false),
            ("x 1 2\n", false),
            ("# nothing\n", false),
            ("", false),
        ] {
            for _ in 0..2 {
                assert!(!forms.learn_from(PATH, body) || has_form, "{body}");
            }
            assert_eq!(forms.recall(PATH, body).is_some(), has_form, "{body}");
            assert_eq!(forms.learn_from(PATH, body), has_form, "{body}");
        }
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_forms_in_use() {
        let forms = BodyFormCache::default();
        let long: String = (0..100).map(|n| format!("x{{n=\"{n}\"}} 1\n")).collect();
        let mut most = 0_usize;
        for number in 0..120 {
            let body = format!("# HELP x {number}\n{long}");
            for _ in 0..2 {
                forms.learn_from(PATH, &body);
                forms.learn_from(PATH, "often 1\n");
                assert!(number == 0 || forms.recall(PATH, "often 2\n").is_some());
            }
            assert!(forms.recall(PATH, &body).is_some());
            let table = forms.table();
            let all = table.newer.values().chain(table.older.values());
            most = most.max(all.flatten().map(|form| form.bytes()).sum::<usize>());
        }
        assert!((MAX_BYTES..3 * MAX_BYTES).contains(&most), "{most}");
        // If there are more forms than the cache can hold, only a few are cached.
        let kept = (0..40_000).filter(|number| {
            let body = format!("y{} 1\n", number % 20_000);
            let values = Template::values(&body).unwrap();
            let hash = forms.hash(body.as_bytes(), &values, &grouping(PATH));
            forms.table().is_repeated(hash)
        });
        assert!(kept.count() < 2_000);
    }
}
