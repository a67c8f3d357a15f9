//! The description of a family: its name, help, labels, and the layout of its series in memory.
//!
//! It is written once, when the family is created. Every process that opens the segment reads it,
//! and `docs/formats.md` draws its bytes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::family::is_dense;

/// The description of a family.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// The name of the metric.
    pub name: String,
    /// The help text of the metric.
    pub help: String,
    /// The unit of the values; empty if there is none.
    pub unit: String,
    /// The meaning of the cells: a number that the layer above defines.
    pub kind: u8,
    /// The number of cells of a series, from 1 to 512.
    pub cells: u16,
    /// A bit mask of the first 64 cells: bit `i` is set if cell `i` is a float.
    pub floats: u64,
    /// The number of *pairs* at the beginning of the cells. A pair is a float sum and a count, and
    /// [`add_pair`](super::SeriesCells::add_pair) adds to both at once. Pairs require an even
    /// number of cells, sums, and fixed values for all labels.
    pub pairs: u8,
    /// Whether the cells are sums. Each CPU can then use a separate copy of the cells.
    pub additive: bool,
    /// The labels, in order.
    pub labels: Vec<Label>,
    /// The maximum number of series; updates of further series count in one overflow series.
    pub limit: Option<u64>,
    /// The time after which an unchanged series is hidden.
    pub idle: Option<Duration>,
    /// Data for the layer above.
    pub settings: Vec<u8>,
    /// The fields that distinguish the family from others of its segment.
    pub identity: Identity,
    /// A number for the layer above. Variants that differ only in this number are different
    /// families.
    pub class: u8,
}

/// The fields that distinguish a family from others of its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Identity {
    /// The name. Another description with the same name is an error.
    #[default]
    Name,
    /// The name, the kind, the unit, the labels in their order, and the settings. Use this for
    /// metrics from outside, where the label names can vary from series to series.
    Variant,
    /// The handle: each call creates a new family, which cannot be found by name.
    Apart,
}

/// A label of a family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The name of the label.
    pub name: String,
    /// The fixed values; `None` if the label is dynamic.
    pub values: Option<Vec<String>>,
}

/// The maximum number of cells of a series.
pub const MAX_CELLS: u16 = 512;
/// The maximum size of a family with pairs, in words of one lane: 128 KiB. This bound must not
/// depend on the number of CPUs, which decides whether the family gets lanes, because the next
/// process to open a file can find another number.
const MAX_PAIRED_WORDS: usize = 1 << 14;
/// The maximum number of labels.
const MAX_LABELS: usize = 255;
/// The maximum length of a fixed value, in bytes.
const MAX_VALUE: usize = 1 << 16;
/// The maximum number of combinations of fixed values.
const MAX_GROUPS: u32 = 1 << 24;
/// The bytes before the strings.
const HEAD: usize = 40;
const DYNAMIC: u32 = u32::MAX;

impl Schema {
    /// Checks the description, and returns the number of combinations of fixed values.
    ///
    /// # Errors
    /// The reason why no family can be like this.
    pub(crate) fn check(&self) -> Result<u32, String> {
        if self.cells == 0 || self.cells > MAX_CELLS {
            return Err(format!("{} cells are out of range: use 1 to {MAX_CELLS}", self.cells));
        }
        if self.labels.len() > MAX_LABELS {
            return Err(format!("{} labels; at most {MAX_LABELS} fit", self.labels.len()));
        }
        let mut groups = 1_u32;
        for (i, label) in self.labels.iter().enumerate() {
            if self.labels[..i].iter().any(|other| other.name == label.name) {
                return Err(format!("the label {:?} is there twice", label.name));
            }
            let Some(values) = &label.values else { continue };
            if let Some(long) = values.iter().find(|value| value.len() > MAX_VALUE) {
                let (name, bytes) = (&label.name, long.len());
                return Err(format!(
                    "the label {name:?} has a value of {bytes} bytes; at most {MAX_VALUE} fit"
                ));
            }
            if let Some(twice) = find_twice(values) {
                return Err(format!("the label {:?} has the value {twice:?} twice", label.name));
            }
            groups = u32::try_from(values.len())
                .ok()
                .and_then(|count| groups.checked_mul(count))
                .filter(|&groups| groups <= MAX_GROUPS)
                .ok_or_else(|| {
                    format!("more than {MAX_GROUPS} combinations of fixed label values")
                })?;
        }
        if groups == 0 {
            return Err("a label of fixed cardinality without any value".into());
        }
        if self.pairs > 0 && !self.can_be_paired(groups) {
            let (pairs, cells) = (self.pairs, self.cells);
            return Err(format!("{pairs} pairs of a sum and a count do not fit its {cells} cells"));
        }
        Ok(groups)
    }

    /// Returns whether pairs are worth their memory if each series takes `cells` cells then. Pairs
    /// only speed up additions to lanes, which large families and families with dynamic labels do
    /// not use.
    pub fn suits_pairs(&self, cells: usize) -> bool {
        let mut counts = self.labels.iter().map(|label| label.values.as_ref().map(Vec::len));
        let groups = counts.try_fold(1_usize, |groups, count| groups.checked_mul(count?));
        let words = groups.and_then(|groups| groups.checked_add(1)?.checked_mul(cells));
        self.additive && words.is_some_and(|words| words <= MAX_PAIRED_WORDS)
    }

    /// Returns whether the cells can begin with that many pairs.
    fn can_be_paired(&self, groups: u32) -> bool {
        let is_pair = |pair| self.floats >> (2 * pair) & 0b11 == 0b01;
        self.additive
            && self.pairs <= 32
            && u16::from(self.pairs) * 2 <= self.cells
            && self.cells.is_multiple_of(2)
            && (0..self.pairs).all(is_pair)
            && is_dense(self, groups)
    }

    /// Returns the name for lookups. For a variant, this contains all fields that distinguish it.
    pub(crate) fn lookup_name(&self) -> Cow<'_, str> {
        if self.identity != Identity::Variant {
            return Cow::Borrowed(&self.name);
        }
        // A name contains no NUL, so no two descriptions give the same string.
        let Self { name, kind, cells, class, unit, .. } = self;
        let mut text = format!("{name}\0{kind} {cells} {class}\0{unit}");
        for label in &self.labels {
            for part in [&label.name].into_iter().chain(label.values.iter().flatten()) {
                let _ = write!(text, "\0{}:{part}", part.len());
            }
            text.push('\0');
        }
        self.settings.iter().for_each(|byte| {
            let _ = write!(text, " {byte}");
        });
        Cow::Owned(text)
    }

    /// Explains a contradiction to another description with the same name; `None` if there is none.
    pub(crate) fn contradiction(&self, other: &Self) -> Option<String> {
        let layout = |schema: &Self| (schema.kind, schema.cells, schema.floats, schema.pairs);
        if layout(self) != layout(other) {
            return Some("it is of another kind".into());
        }
        if (&self.settings, self.class) != (&other.settings, other.class) {
            return Some("it has other settings, such as other buckets".into());
        }
        if self.labels != other.labels {
            let names = |schema: &Self| {
                let labels = schema.labels.iter().map(|label| match &label.values {
                    Some(values) => format!("{} of {} values", label.name, values.len()),
                    None => label.name.clone(),
                });
                labels.collect::<Vec<_>>().join(", ")
            };
            return Some(format!("its labels are ({}), not ({})", names(self), names(other)));
        }
        if self.unit != other.unit {
            return Some(format!("its unit is {:?}, not {:?}", self.unit, other.unit));
        }
        None
    }

    /// Returns the bytes of the description.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_bytes());
        out.push(self.kind);
        out.push(u8::from(self.additive) | self.identity.bits());
        out.extend_from_slice(&self.cells.to_le_bytes());
        // The cast is safe, because `check` ensured that there are at most 255.
        out.extend_from_slice(&(self.labels.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.limit.unwrap_or(u64::MAX).to_le_bytes());
        let idle = self
            .idle
            .map_or(u64::MAX, |idle| u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX - 1));
        out.extend_from_slice(&idle.to_le_bytes());
        out.extend_from_slice(&self.floats.to_le_bytes());
        out.extend_from_slice(&[self.class, self.pairs, 0, 0, 0, 0, 0, 0]);
        debug_assert_eq!(out.len(), HEAD);
        let put = |out: &mut Vec<u8>, bytes: &[u8]| {
            // The cast is safe, because reserving a record fails above 4 GiB.
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        };
        for text in [&self.name, &self.help, &self.unit] {
            put(&mut out, text.as_bytes());
        }
        put(&mut out, &self.settings);
        for label in &self.labels {
            put(&mut out, label.name.as_bytes());
            match &label.values {
                None => out.extend_from_slice(&DYNAMIC.to_le_bytes()),
                Some(values) => {
                    out.extend_from_slice(&(values.len() as u32).to_le_bytes());
                    values.iter().for_each(|value| put(&mut out, value.as_bytes()));
                }
            }
        }
        out
    }

    /// Returns the number of bytes of the description.
    fn encoded_bytes(&self) -> usize {
        let text = |bytes: usize| size_of::<u32>() + bytes;
        let values = |label: &Label| {
            let values = label.values.iter().flatten().map(|value| text(value.len()));
            size_of::<u32>() + values.sum::<usize>()
        };
        let labels = self.labels.iter().map(|label| text(label.name.len()) + values(label));
        let texts = [&self.name, &self.help, &self.unit].map(|part| text(part.len()));
        HEAD + texts.iter().sum::<usize>() + text(self.settings.len()) + labels.sum::<usize>()
    }

    /// Returns the lookup name of a description in untrusted bytes; `Some(None)` for
    /// [`Identity::Apart`].
    pub(crate) fn decode_lookup_name(bytes: &[u8]) -> Option<Option<String>> {
        let rest = bytes.get(HEAD..)?;
        match Identity::of_bits(bytes[1])? {
            Identity::Apart => Some(None),
            Identity::Name => Some(Some(Reader(rest).text().ok()?)),
            Identity::Variant => Some(Some(Self::decode(bytes).ok()?.lookup_name().into_owned())),
        }
    }

    /// Reads a description from untrusted bytes.
    ///
    /// # Errors
    /// The contradiction with the layout.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        Self::decode_with_groups(bytes).map(|(schema, _)| schema)
    }

    /// Like [`Schema::decode`], but also returns the number of combinations of fixed values.
    ///
    /// # Errors
    /// The errors of [`Schema::decode`].
    pub(crate) fn decode_with_groups(bytes: &[u8]) -> Result<(Self, u32), String> {
        let mut reader = Reader(bytes);
        let short = || "it is cut short".to_owned();
        let head = reader.take(HEAD).ok_or_else(short)?;
        let word = |at: usize| {
            let bytes = head[at..at + 8].try_into().expect("a slice of 8 bytes is an array of 8");
            u64::from_le_bytes(bytes)
        };
        let identity = Identity::of_bits(head[1]);
        let identity = identity.ok_or_else(|| format!("its flags are {}", head[1]))?;
        let count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if count > MAX_LABELS {
            return Err(format!("it states {count} labels"));
        }
        let mut schema = Self {
            kind: head[0],
            additive: head[1] & 1 == 1,
            identity,
            cells: u16::from_le_bytes([head[2], head[3]]),
            limit: Some(word(8)).filter(|&limit| limit != u64::MAX),
            idle: Some(word(16)).filter(|&idle| idle != u64::MAX).map(Duration::from_nanos),
            floats: word(24),
            class: head[32],
            pairs: head[33],
            ..Self::default()
        };
        schema.name = reader.text()?;
        schema.help = reader.text()?;
        schema.unit = reader.text()?;
        let length = reader.number().ok_or_else(short)?;
        schema.settings = reader.take(length as usize).ok_or_else(short)?.to_vec();
        for _ in 0..count {
            let name = reader.text()?;
            let values = match reader.number().ok_or_else(short)? {
                DYNAMIC => None,
                // Check the count before allocating, because each value takes at least 4 bytes.
                values if values as usize > reader.0.len() / 4 => return Err(short()),
                values => Some((0..values).map(|_| reader.text()).collect::<Result<_, _>>()?),
            };
            schema.labels.push(Label { name, values });
        }
        let groups = schema.check()?;
        Ok((schema, groups))
    }
}

impl Identity {
    const APART: u8 = 2;
    const VARIANT: u8 = 4;

    fn bits(self) -> u8 {
        match self {
            Self::Name => 0,
            Self::Apart => Self::APART,
            Self::Variant => Self::VARIANT,
        }
    }

    /// Reads the flags of a description; `None` if they are unknown.
    fn of_bits(flags: u8) -> Option<Self> {
        match flags & !1 {
            0 => Some(Self::Name),
            Self::APART => Some(Self::Apart),
            Self::VARIANT => Some(Self::Variant),
            _ => None,
        }
    }
}

/// Returns the first value that occurs twice.
fn find_twice(values: &[String]) -> Option<&String> {
    if values.len() <= FEW {
        let mut pairs = values.iter().enumerate();
        return pairs.find(|(i, value)| values[..*i].contains(value)).map(|(_, value)| value);
    }
    let mut seen = HashSet::with_capacity(values.len());
    values.iter().find(|value| !seen.insert(value.as_str()))
}

/// Up to this many values are compared with each other, because this is faster than hashing.
const FEW: usize = 16;

/// Reads values from the front of a byte slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*taken))
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.number().ok_or("it is cut short")?;
        let bytes = self.take(length as usize).ok_or("it is cut short")?;
        let text = std::str::from_utf8(bytes).map_err(|_| "a text in it is not UTF-8")?;
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema {
            name: "requests".into(),
            help: "Requests that were answered.".into(),
            unit: "seconds".into(),
            kind: 3,
            cells: 10,
            floats: 1,
            pairs: 0,
            additive: true,
            labels: vec![
                Label { name: "kind".into(), values: Some(vec!["a".into(), "b".into()]) },
                Label { name: "user".into(), values: None },
            ],
            limit: Some(1000),
            idle: Some(Duration::from_secs(60)),
            settings: vec![1, 2, 3],
            identity: Identity::Apart,
            class: 7,
        }
    }

    #[test]
    fn a_description_comes_back() {
        let bytes = schema().encode();
        assert_eq!(Schema::decode(&bytes).unwrap(), schema());
        let plain = Schema { cells: 1, ..Schema::default() };
        assert_eq!(Schema::decode(&plain.encode()).unwrap(), plain);
        let paired = Schema { cells: 6, floats: 0b0101, pairs: 2, additive: true, ..plain };
        assert_eq!(Schema::decode(&paired.encode()).unwrap(), paired);
        let odd = Schema { cells: 5, ..paired };
        assert!(Schema::decode(&odd.encode()).unwrap_err().contains("2 pairs"));
    }

    #[test]
    fn variants_are_found_by_all_that_distinguishes_them() {
        let variant = Schema { identity: Identity::Variant, ..schema() };
        let bytes = variant.encode();
        assert_eq!(Schema::decode(&bytes).unwrap(), variant);
        let found = |schema: &Schema| Schema::decode_lookup_name(&schema.encode()).unwrap();
        assert_eq!(found(&variant).unwrap(), variant.lookup_name());
        assert_eq!(found(&schema()), None);
        let named = Schema { identity: Identity::Name, ..schema() };
        assert_eq!(found(&named).as_deref(), Some("requests"));
        let label = |name: &str, values: Option<&[&str]>| Label {
            name: name.into(),
            values: values.map(|values| values.iter().map(|&value| value.into()).collect()),
        };
        let others = [
            Schema { name: "request".into(), ..variant.clone() },
            Schema { unit: "second".into(), ..variant.clone() },
            Schema { kind: 4, ..variant.clone() },
            Schema { class: 4, ..variant.clone() },
            Schema { settings: vec![12, 3], ..variant.clone() },
            Schema { settings: vec![1, 23], ..variant.clone() },
            Schema { labels: vec![label("kind", None), label("user", None)], ..variant.clone() },
            Schema { labels: vec![label("kind", Some(&["a", "b", "user"]))], ..variant.clone() },
            Schema { labels: vec![label("kind", Some(&["a", "b"]))], ..variant.clone() },
        ];
        let mut texts: Vec<String> = others.iter().map(|one| found(one).unwrap()).collect();
        texts.push(found(&variant).unwrap());
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), others.len() + 1);
        let alike = Schema { help: "Other.".into(), limit: None, idle: None, ..variant.clone() };
        assert_eq!(alike.lookup_name(), variant.lookup_name());
    }

    #[test]
    fn truncated_and_changed_schemas_never_panic() {
        let bytes = schema().encode();
        for length in 0..bytes.len() {
            Schema::decode(&bytes[..length]).unwrap_err();
        }
        for at in (0..bytes.len()).step_by(if cfg!(miri) { 5 } else { 1 }) {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _ = Schema::decode(&changed);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes minutes, and has no unsafe code to look at")]
    fn the_fault_of_an_impossible_schema_is_named() {
        let twice = Schema {
            labels: vec![schema().labels[1].clone(), schema().labels[1].clone()],
            ..schema()
        };
        assert_eq!(twice.check().unwrap_err(), "the label \"user\" is there twice");
        assert!(Schema { cells: 0, ..schema() }.check().is_err());
        for count in [2, FEW, FEW + 1, 100] {
            let mut values: Vec<String> = (1..count).map(|i| i.to_string()).collect();
            values.push("1".into());
            let labels = vec![Label { name: "kind".into(), values: Some(values) }];
            let fault = Schema { labels, ..schema() }.check().unwrap_err();
            assert_eq!(fault, "the label \"kind\" has the value \"1\" twice");
        }
        let many = (0..5000).map(|i| i.to_string()).collect::<Vec<_>>();
        let label = |name: &str| Label { name: name.into(), values: Some(many.clone()) };
        let huge = Schema { labels: vec![label("a"), label("b")], ..schema() };
        assert!(huge.check().unwrap_err().contains("combinations"));
        let of = |bytes: usize| {
            let values = Some(vec!["a".repeat(bytes)]);
            Schema { labels: vec![Label { name: "kind".into(), values }], ..schema() }
        };
        of(1 << 16).check().unwrap();
        assert!(of((1 << 16) + 1).check().unwrap_err().contains("65537 bytes; at most 65536 fit"));
    }
}
