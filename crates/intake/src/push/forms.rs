//! Forms of bodies: what was found out about one body, for all bodies that are like it.
//!
//! A program pushes the same lines again and again, and so does each of its instances: only the
//! values differ. Bodies in text have the same form if they are the same but for the values at the
//! ends of their lines, and are for groups with the same label names. Then all but the values is
//! the same for them: the families, their series, and in which one a value belongs. So of a body of
//! a known form, the bytes are compared and the values read; what cannot be taken goes the long
//! way, which knows why.
//!
//! A body that begins as an earlier one did has most likely its form. So its bytes are compared
//! with that form first, which also says where the values are; only if they differ are its values
//! looked for, to find its form by what is left.
//!
//! A form belongs to no group, so 10,000 groups of one program share one. It is kept once a body
//! comes that is like an earlier one, within a number of bytes; what was used least recently goes.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use quipu_segment::hash::Seeded;
use quipu_wire::remote::exposition::text::number;

use super::batch::{Batch, is_count};
use super::content::{Amount, Content, Families, Held, Values};
use super::parse::Parser;
use super::path::Grouping;
use super::spots::Destination;
use quipu_client::media::Media;

/// The forms that are known.
#[derive(Debug)]
pub(super) struct Forms {
    hashes: Seeded,
    table: Mutex<Table>,
}

/// Forms by the hash of all but the values, in two generations. A form that is found in the older
/// one moves to the newer one; when this is full, it becomes the older one.
#[derive(Debug)]
struct Table {
    newer: HashMap<u64, Arc<Form>, Seeded>,
    older: HashMap<u64, Arc<Form>, Seeded>,
    /// About how many bytes the newer ones have.
    bytes: usize,
    /// Hashes of bodies that came once, each at a place that depends on it.
    once: Box<[u64]>,
    /// Hashes of the forms of the last bodies, each at a place that depends on how the body begins.
    last: Box<[u64]>,
}

/// What bodies of one form have in common.
pub(super) struct Form {
    /// No other form has it, as long as the process lives.
    number: u64,
    /// The names of the labels of their groups.
    names: Box<[Box<str>]>,
    /// Their bytes without the values, and where each part of these ends. Both are empty if such
    /// bodies have to go the long way.
    text: Box<[u8]>,
    ends: Box<[usize]>,
    families: Arc<Families>,
    places: Box<[Place]>,
    points: Box<[Point]>,
    /// Where the values go, once a push of this form has made its series.
    known: OnceLock<Box<[Destination]>>,
}

/// From which values of a body that of a series is made. The first one has the number 1; 0 stands
/// for a value that is not there.
#[derive(Debug)]
enum Place {
    Counter(usize),
    Gauge(usize),
    Untyped(usize),
    Histogram { points: Range<usize>, sum: usize },
    Summary { points: Range<usize>, count: usize, sum: usize },
}

/// The bound of a bucket, or a quantile, with the number of its value.
type Point = (f64, usize);

/// A body, in which the places of the values are known.
pub(super) struct Scanned<'b> {
    text: &'b str,
    values: Vec<Range<usize>>,
    /// That of all but the values.
    hash: u64,
}

impl Forms {
    /// What a body in Prometheus' text format holds, if it has the form of the last body that began
    /// as it does. `None` if not: it may have another form that is known.
    pub(super) fn guess(&self, body: &[u8], grouping: &Grouping) -> Option<Content> {
        if has_fewer_labels(grouping) {
            return None;
        }
        let place = self.place(body);
        let form = self.table().last(place)?;
        let numbers = form.numbers(body, grouping)?;
        form.content(&numbers, grouping.job())
    }

    /// Finds the values of a body in Prometheus' text format. `None` if it cannot have a form.
    pub(super) fn scan<'b>(&self, body: &'b [u8], grouping: &Grouping) -> Option<Scanned<'b>> {
        let text = str::from_utf8(body).ok()?;
        if has_fewer_labels(grouping) {
            return None;
        }
        let mut hasher = self.hashes.build_hasher();
        grouping.labels().for_each(|(name, _)| name.hash(&mut hasher));
        let (mut values, mut start, mut end) = (Vec::with_capacity(128), 0, 0);
        for line in text.split('\n') {
            let first = line.bytes().find(|byte| !matches!(byte, b' ' | b'\t'));
            if first.is_some_and(|byte| byte != b'#') {
                let space = line.bytes().rposition(|byte| matches!(byte, b' ' | b'\t'))?;
                let value = start + space + 1..start + line.len();
                hasher.write(&body[end..value.start]);
                end = value.end;
                values.push(value);
            }
            start += line.len() + 1;
        }
        hasher.write(&body[end..]);
        (!values.is_empty()).then(|| Scanned { text, values, hash: hasher.finish() })
    }

    /// The form of a body, if it is known.
    pub(super) fn find(&self, body: &Scanned<'_>, grouping: &Grouping) -> Option<Arc<Form>> {
        let place = self.place(body.text.as_bytes());
        let form = self.table().find(body.hash, place)?;
        form.is_of(body, grouping).then_some(form)
    }

    /// Keeps the form of a body that was read in the long way, if one like it came before.
    pub(super) fn learn(
        &self,
        body: &Scanned<'_>,
        content: &Content,
        batch: &Batch,
    ) -> Option<Arc<Form>> {
        if !self.table().came_before(body.hash) {
            return None;
        }
        let form = Form::of(body, content, batch);
        let is_usable = form.is_some();
        let form = Arc::new(form.unwrap_or_else(Form::none));
        self.table().insert(body.hash, Arc::clone(&form));
        is_usable.then_some(form)
    }

    /// The place of the form of bodies that begin as this one.
    fn place(&self, body: &[u8]) -> usize {
        // The remainder fits.
        (self.hashes.hash_one(&body[..body.len().min(BEGINNING)]) % LAST as u64) as usize
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // The table is consistent between any two changes of it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Forms {
    fn default() -> Self {
        let table = Table {
            newer: HashMap::default(),
            older: HashMap::default(),
            bytes: 0,
            once: vec![0; ONCE].into(),
            last: vec![0; LAST].into(),
        };
        Self { hashes: Seeded::default(), table: Mutex::new(table) }
    }
}

/// Whether a group has one label less than its path says.
fn has_fewer_labels(grouping: &Grouping) -> bool {
    grouping.value("instance").is_some_and(str::is_empty)
}

impl Table {
    /// The form of that hash. Notes that it is the last one at this place.
    fn find(&mut self, hash: u64, place: usize) -> Option<Arc<Form>> {
        self.last[place] = hash;
        self.used(hash)
    }

    /// The form that was found last at this place.
    fn last(&mut self, place: usize) -> Option<Arc<Form>> {
        self.used(self.last[place])
    }

    /// The form of that hash, which stays for some time now.
    fn used(&mut self, hash: u64) -> Option<Arc<Form>> {
        if let Some(form) = self.newer.get(&hash) {
            return Some(Arc::clone(form));
        }
        let form = self.older.remove(&hash)?;
        self.insert(hash, Arc::clone(&form));
        Some(form)
    }

    fn insert(&mut self, hash: u64, form: Arc<Form>) {
        if self.bytes >= MOST_BYTES {
            self.older = mem::take(&mut self.newer);
            self.bytes = 0;
        }
        self.bytes += form.bytes();
        self.newer.insert(hash, form);
    }

    /// Whether a body of that hash came before, and has no form yet. Notes that it came.
    fn came_before(&mut self, hash: u64) -> bool {
        if self.newer.contains_key(&hash) || self.older.contains_key(&hash) {
            return false;
        }
        // The remainder fits.
        let place = &mut self.once[(hash % ONCE as u64) as usize];
        mem::replace(place, hash) == hash
    }
}

/// The bytes that a generation of forms has, more or less.
const MOST_BYTES: usize = if cfg!(test) { 1 << 20 } else { 16 << 20 };
/// The most hashes of bodies that came once. If many more forms take turns, most are not kept: to
/// keep one that falls out before it is used would take time for nothing.
const ONCE: usize = 4096;
/// The places of forms by how bodies begin, and the bytes that tell how: some of the first line.
const LAST: usize = 64;
const BEGINNING: usize = 64;

impl<'b> Scanned<'b> {
    /// What is before, between and after the values.
    fn parts(&self) -> impl Iterator<Item = &'b [u8]> {
        let starts = std::iter::once(0).chain(self.values.iter().map(|value| value.end));
        let ends = self.values.iter().map(|value| value.start);
        let bytes = self.text.as_bytes();
        starts.zip(ends.chain([bytes.len()])).map(|(start, end)| &bytes[start..end])
    }

    /// The body with numbers in place of the values: 1, 2, 3, ...
    fn numbered(&self) -> String {
        let mut text = String::with_capacity(self.text.len() + 4 * self.values.len());
        let mut start = 0;
        for (value, number) in self.values.iter().zip(1..) {
            text.push_str(&self.text[start..value.start]);
            text.push_str(&usize::to_string(&number));
            start = value.end;
        }
        text + &self.text[start..]
    }
}

impl Form {
    /// The form of a body that was read. `None` if it has to go the long way.
    ///
    /// The body is read once more, with numbers in place of the values, so what is found in place
    /// of a value says from where it comes. This relies on that readers look at values only to
    /// refuse them, or to store them: whatever else they do with some of them makes a number that
    /// is not one of these, or one that comes twice.
    fn of(body: &Scanned<'_>, content: &Content, batch: &Batch) -> Option<Self> {
        let mut again = Batch::new(batch.grouping().clone(), batch.limits());
        let mut parser = Parser::new(Media::new(""));
        parser.push(body.numbered().as_bytes(), &mut again).ok()?;
        parser.finish(&mut again).ok()?;
        let numbered = again.finish().ok()?;
        if !numbered.families.is_same(&content.families) {
            return None;
        }
        let (places, points) = Numbers::new(body.values.len()).places(&numbered.values)?;
        let parts: Vec<&[u8]> = body.parts().collect();
        let ends = parts.iter().scan(0, |end, part| {
            *end += part.len();
            Some(*end)
        });
        Some(Self {
            number: next_number(),
            names: batch.grouping().labels().map(|(name, _)| name.into()).collect(),
            ends: ends.collect(),
            text: parts.concat().into(),
            families: Arc::clone(&content.families),
            places: places.into(),
            points: points.into(),
            known: OnceLock::new(),
        })
    }

    /// For bodies that have to go the long way.
    fn none() -> Self {
        Self {
            number: next_number(),
            names: [].into(),
            text: [].into(),
            ends: [].into(),
            families: Arc::default(),
            places: [].into(),
            points: [].into(),
            known: OnceLock::new(),
        }
    }

    /// Whether a body for a group has this form.
    fn is_of(&self, body: &Scanned<'_>, grouping: &Grouping) -> bool {
        let mut start = 0;
        let parts = self.ends.iter().map(|end| &self.text[mem::replace(&mut start, *end)..*end]);
        self.is_for(grouping) && body.parts().eq(parts)
    }

    /// Whether bodies for a group can have this form.
    fn is_for(&self, grouping: &Grouping) -> bool {
        let names = grouping.labels().map(|(name, _)| name);
        names.eq(self.names.iter().map(|name| &**name))
    }

    /// What a push with a body of this form holds. `None` if one of the values cannot be read or is
    /// not possible.
    pub(super) fn read(self: Arc<Self>, body: &Scanned<'_>, job: &str) -> Option<Content> {
        let mut numbers = Vec::with_capacity(1 + body.values.len());
        numbers.push(0.0);
        for value in &body.values {
            numbers.push(number(&body.text[value.clone()])?);
        }
        self.content(&numbers, job)
    }

    /// The values of a body for a group, if it has this form and they can be read; before them the
    /// number of values that are not there.
    ///
    /// A value goes on to the end of its line, and cannot be read if it has a blank in it. So a
    /// body that is the same but for its values has them where [`Forms::scan`] finds them.
    fn numbers(&self, body: &[u8], grouping: &Grouping) -> Option<Vec<f64>> {
        if !self.is_for(grouping) {
            return None;
        }
        let (end, ends) = self.ends.split_last()?;
        let mut numbers = Vec::with_capacity(1 + ends.len());
        numbers.push(0.0);
        // Once for all: for each value alone, it takes as long as to read it.
        let text = str::from_utf8(body).ok()?;
        let (mut at, mut start) = (0, 0);
        for end in ends {
            let part = &self.text[mem::replace(&mut start, *end)..*end];
            let rest = body[at..].strip_prefix(part)?;
            let len = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            at += part.len();
            numbers.push(number(&text[at..at + len])?);
            at += len;
        }
        (body[at..] == self.text[start..*end]).then_some(numbers)
    }

    /// What a push with these values holds, of which the first stands for those that are not there.
    fn content(self: Arc<Self>, numbers: &[f64], job: &str) -> Option<Content> {
        let count = |at: usize| Some(numbers[at]).filter(|count| is_count(*count));
        let mut points = Vec::with_capacity(self.points.len());
        let mut held = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let start = points.len();
            let (amount, sum) = match place {
                Place::Counter(at) => (Amount::Counter(count(*at)?), 0),
                Place::Gauge(at) => (Amount::Gauge(numbers[*at]), 0),
                Place::Untyped(at) => (Amount::Untyped(numbers[*at]), 0),
                Place::Histogram { points: buckets, sum } => {
                    let mut before = 0.0;
                    for (bound, at) in &self.points[buckets.clone()] {
                        let count = count(*at).filter(|count| *count >= before)?;
                        points.push((*bound, count - before));
                        before = count;
                    }
                    (Amount::Histogram(start..points.len()), *sum)
                }
                Place::Summary { points: quantiles, count: at, sum } => {
                    let quantiles = self.points[quantiles.clone()].iter();
                    points.extend(quantiles.map(|(quantile, at)| (*quantile, numbers[*at])));
                    (Amount::Summary(start..points.len(), count(*at)?), *sum)
                }
            };
            held.push(Held { amount, sum: numbers[sum], start: None });
        }
        let values = Values { held, points, natives: Vec::new() };
        let (job, families) = (job.to_owned(), Arc::clone(&self.families));
        Some(Content { job, families, values, form: Some(self) })
    }

    /// The number of the form, which no other form has.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Where the values go; nothing if that is not known.
    pub(super) fn known(&self) -> &[Destination] {
        self.known.get().map_or(&[], |known| known)
    }

    /// Keeps where the values go, unless that is known.
    pub(super) fn know(&self, known: Vec<Destination>) {
        self.known.get_or_init(|| known.into());
    }

    /// About how many bytes it has, with what is found out later.
    fn bytes(&self) -> usize {
        size_of::<Self>() + 4 * self.text.len() + 256 * (self.places.len() + self.points.len())
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Form").field("places", &self.places).finish_non_exhaustive()
    }
}

/// The number of a new form.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The numbers that stand in for values: which of them were found.
struct Numbers(Vec<bool>);

impl Numbers {
    fn new(values: usize) -> Self {
        Self(vec![false; values])
    }

    /// The places of numbers in what was made of them.
    fn places(&mut self, values: &Values) -> Option<(Vec<Place>, Vec<Point>)> {
        let mut points = Vec::new();
        let mut place = |held: &Held| {
            let start = points.len();
            if held.start.is_some() {
                return None;
            }
            Some(match &held.amount {
                Amount::Counter(number) => Place::Counter(self.take(*number)?),
                Amount::Gauge(number) => Place::Gauge(self.take(*number)?),
                Amount::Untyped(number) => Place::Untyped(self.take(*number)?),
                Amount::Histogram(buckets) => {
                    let mut all = 0.0;
                    for (bound, count) in &values.points[buckets.clone()] {
                        all += count;
                        points.push((*bound, self.take(all)?));
                    }
                    let sum = self.take_if_there(held.sum)?;
                    Place::Histogram { points: start..points.len(), sum }
                }
                Amount::Summary(quantiles, count) => {
                    for (quantile, number) in &values.points[quantiles.clone()] {
                        points.push((*quantile, self.take(*number)?));
                    }
                    let (count, sum) = (self.take_if_there(*count)?, self.take_if_there(held.sum)?);
                    Place::Summary { points: start..points.len(), count, sum }
                }
                Amount::Native(_) => return None,
            })
        };
        let places = values.held.iter().map(&mut place).collect::<Option<Vec<Place>>>()?;
        Some((places, points))
    }

    /// A number that is one of these, and was not found before.
    fn take(&mut self, number: f64) -> Option<usize> {
        // The cast saturates.
        let whole = number as usize;
        let found = self.0.get_mut(whole.checked_sub(1)?)?;
        (whole as f64 == number && !mem::replace(found, true)).then_some(whole)
    }

    fn take_if_there(&mut self, number: f64) -> Option<usize> {
        if number == 0.0 { Some(0) } else { self.take(number) }
    }
}

#[cfg(test)]
mod tests {
    use quipu::intake::Limits;

    use super::super::batch::Fault;
    use super::*;

    fn grouping(path: &str) -> Grouping {
        Grouping::parse(path).unwrap()
    }

    /// The long way.
    fn read(path: &str, body: &str) -> (Batch, Result<Content, Fault>) {
        let mut batch = Batch::new(grouping(path), &Limits::default());
        let mut parser = Parser::new(Media::new(""));
        let read = parser.push(body.as_bytes(), &mut batch);
        let read = read.and_then(|()| parser.finish(&mut batch)).and_then(|()| batch.finish());
        (batch, read)
    }

    impl Forms {
        /// What the form of a body says of it, if it is known.
        fn recall(&self, path: &str, body: &str) -> Option<Content> {
            let grouping = grouping(path);
            // What the body before was like makes no difference, but to whether it is a guess.
            let guess = self.guess(body.as_bytes(), &grouping);
            let scanned = self.scan(body.as_bytes(), &grouping);
            let found = scanned
                .and_then(|scanned| self.find(&scanned, &grouping)?.read(&scanned, grouping.job()));
            let values = |content: Content| (format!("{:?}", content.values), content.job);
            let again = self.guess(body.as_bytes(), &grouping).map(values);
            let expected = found.is_some();
            assert_eq!(again.is_some(), expected, "{body}");
            assert!(guess.is_none() || guess.map(values) == again, "{body}");
            found
        }

        /// Reads a body in the long way. Returns whether its form is kept.
        fn learn_from(&self, path: &str, body: &str) -> bool {
            let (batch, content) = read(path, body);
            let Some(scanned) = self.scan(body.as_bytes(), &grouping(path)) else { return false };
            content.is_ok_and(|content| self.learn(&scanned, &content, &batch).is_some())
        }
    }

    const PATH: &str = "job/j/zone/z";
    const BODY: &str = "# HELP c Of c, 1.\n# TYPE c counter\nc{a=\"x y\",zone=\"no\"} @\n c{a=\"\\n\"}\t@\n\n\
        # TYPE g gauge\ng @\n# TYPE h histogram\nh_bucket{le=\"1\"} @\nh_bucket{le=\"+Inf\"} @\n\
        h_sum @\nh_count @\n# TYPE i histogram\ni_bucket{b=\"1\",le=\"1\"} @\ni_count{b=\"1\"} @\n\
        u{a=\"}\"} @\n# TYPE s summary\ns{quantile=\"0.5\"} @\ns_sum @\ns_count @\n\
        push_time_seconds @\ng{a=\"1\"} @\n# the end 5\nlast @";

    /// The body with these values, again and again.
    fn with(values: &[&str]) -> String {
        let mut parts = BODY.split('@');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.zip(values.iter().cycle()).fold(first, |text, (part, value)| text + *value + part)
    }

    #[test]
    fn a_body_of_a_known_form_is_what_the_long_way_makes_of_it() {
        let forms = Forms::default();
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
                let expected = read(PATH, &body).1.unwrap();
                let [values, others] = [&content, &expected].map(|it| format!("{:?}", it.values));
                assert_eq!((values, &content.job), (others, &expected.job), "{body}");
                assert!(content.families.is_same(&expected.families));
                known += 1;
            }
        }
        assert!(known > 100 && unknown > 100, "{known} {unknown}");
    }

    #[test]
    fn other_bodies_and_groups_have_other_forms() {
        let forms = Forms::default();
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
        let forms = Forms::default();
        let help = "what x is ".repeat(BEGINNING / 10 + 1);
        let bodies = ["y", "z"].map(|name| format!("# HELP x {help}\nx 1\n{name} 2\n"));
        for body in bodies.iter().flat_map(|body| [body; 2]) {
            forms.learn_from("job/j", body);
        }
        for body in bodies.iter().cycle().take(5) {
            assert!(forms.recall("job/j", body).is_some(), "{body}");
        }
        // A guess is the form of the last one.
        let is_guessed = |body: &str| forms.guess(body.as_bytes(), &grouping("job/j")).is_some();
        assert_eq!(bodies.each_ref().map(|body| is_guessed(body)), [true, false]);
    }

    #[test]
    fn what_depends_on_values_goes_the_long_way() {
        let forms = Forms::default();
        for (body, has_form) in [
            ("x 1\n", true),
            ("# TYPE h histogram\nh_count 3\nh_sum 4\n", true),
            ("# TYPE s summary\ns_sum 4\n", true),
            ("# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_count 3\n", true),
            // The count is that of the last bucket, if it is not less.
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
            assert!(!forms.learn_from(PATH, body), "{body}: it is known that it has none");
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_used_stays() {
        let forms = Forms::default();
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
            most = most.max(all.map(|form| form.bytes()).sum::<usize>());
        }
        assert!((MOST_BYTES..3 * MOST_BYTES).contains(&most), "{most}");
        // Of more forms than can be kept, few are.
        let kept = (0..40_000).filter(|number| {
            let body = format!("y{} 1\n", number % 20_000);
            let scanned = forms.scan(body.as_bytes(), &grouping(PATH));
            scanned.is_some_and(|scanned| forms.table().came_before(scanned.hash))
        });
        assert!(kept.count() < 2_000);
    }
}
