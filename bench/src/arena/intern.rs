//! A million labels, of which half a million differ: each is looked up, and copied if it is new.
//!
//! A run has an arena and a table of its own, which are freed after it, without being timed: an
//! interner lives as long as its program. The table has room for all from the start, and is the
//! same for all but that the heap's owns its texts.
//!
//! Memory is what the C library says that it has given out (`mallinfo2`): the blocks with their
//! headers, and of an arena the chunks, also what is not used of them. It is by distinct label.

use std::time::{Duration, Instant};

use hashbrown::HashTable;
use rapidhash::v3::{DEFAULT_RAPID_SECRETS, rapidhash_v3_micro_inline};

use super::data::{Random, label};
use super::library::{
    BlinkAlloc, BumpScopeDown, BumpScopeUp, Bumpalo, Library, QuipuDown, QuipuUp,
};
use super::{MALLOC, per_operation};
use crate::measure::{Case, Options, black_box};
use crate::record::{Label, Record};

/// The labels that come.
const LABELS: usize = 1_000_000;
/// The labels that differ.
const DISTINCT: usize = 500_000;

pub(super) fn run(options: &Options) -> Vec<Record> {
    let labels = Labels::new();
    fn add<'a, L: Library>(case: Case<'a>, labels: &'a Labels) -> Case<'a> {
        case.timed(&L::name(), |_, n| (0..n).map(|_| in_an_arena::<L>(labels).0).sum())
    }
    let case = Case::new(NAME);
    let case = add::<QuipuUp>(case, &labels);
    let case = add::<QuipuDown>(case, &labels);
    let case = add::<BumpScopeUp>(case, &labels);
    let case = add::<BumpScopeDown>(case, &labels);
    let case = add::<Bumpalo>(case, &labels);
    let case = add::<BlinkAlloc>(case, &labels);
    let case = case.timed(MALLOC, |_, n| (0..n).map(|_| on_the_heap(&labels).0).sum());
    let mut records = per_operation(LABELS, case.run(options));
    records.extend(memory(&labels));
    records
}

const NAME: &str = "arena/intern";

/// How long it takes, and the bytes of the heap that the texts take then.
fn in_an_arena<L: Library>(labels: &Labels) -> (Duration, Option<usize>) {
    // It is dropped after the table, and made when the table has its memory.
    let arena;
    let mut table = HashTable::with_capacity(DISTINCT);
    let before = heap_in_use();
    arena = L::new();
    let start = Instant::now();
    for label in labels.iter() {
        black_box(interned(&mut table, label, |label| arena.text(label)));
    }
    let elapsed = start.elapsed();
    assert_eq!(table.len(), DISTINCT);
    (elapsed, grown_since(before))
}

fn on_the_heap(labels: &Labels) -> (Duration, Option<usize>) {
    let mut table = HashTable::with_capacity(DISTINCT);
    let before = heap_in_use();
    let start = Instant::now();
    for label in labels.iter() {
        black_box(interned(&mut table, label, Box::<str>::from));
    }
    let elapsed = start.elapsed();
    assert_eq!(table.len(), DISTINCT);
    (elapsed, grown_since(before))
}

/// The text of the table that is equal to a label, which is copied for it if there is none.
#[inline(always)]
fn interned<'t, 'l, T: AsRef<str>>(
    table: &'t mut HashTable<T>,
    label: &'l str,
    copy: impl FnOnce(&'l str) -> T,
) -> &'t str {
    let found = |text: &T| text.as_ref() == label;
    let entry = table.entry(hash(label), found, |text| hash(text.as_ref()));
    let text: &'t T = entry.or_insert_with(|| copy(label)).into_mut();
    text.as_ref()
}

#[inline(always)]
fn hash(text: &str) -> u64 {
    rapidhash_v3_micro_inline::<true, false>(text.as_bytes(), &DEFAULT_RAPID_SECRETS)
}

fn memory(labels: &Labels) -> Vec<Record> {
    let held = [
        (QuipuUp::name(), in_an_arena::<QuipuUp>(labels).1),
        (QuipuDown::name(), in_an_arena::<QuipuDown>(labels).1),
        (BumpScopeUp::name(), in_an_arena::<BumpScopeUp>(labels).1),
        (BumpScopeDown::name(), in_an_arena::<BumpScopeDown>(labels).1),
        (Bumpalo::name(), in_an_arena::<Bumpalo>(labels).1),
        (BlinkAlloc::name(), in_an_arena::<BlinkAlloc>(labels).1),
        (MALLOC.into(), on_the_heap(labels).1),
    ];
    held.into_iter()
        .filter_map(|(subject, bytes)| {
            let bytes = bytes? as f64 / DISTINCT as f64;
            Some(Label::new(NAME, &subject, "memory", "B").of(&[bytes]))
        })
        .collect()
}

fn grown_since(before: Option<usize>) -> Option<usize> {
    heap_in_use().zip(before).map(|(after, before)| after.saturating_sub(before))
}

/// The bytes that the C library has given out, in its heaps and in mappings of their own.
fn heap_in_use() -> Option<usize> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: It takes the locks of the heaps that it looks at.
        let info = unsafe { libc::mallinfo2() };
        Some(info.uordblks + info.hblkhd)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// The labels in the order in which they come, one after the other in one text.
struct Labels {
    text: String,
    ends: Vec<u32>,
}

impl Labels {
    /// Half of the labels are new, at random places. The others are one of those before, whose
    /// ranks are chosen in proportion to 1/rank.
    fn new() -> Labels {
        let mut random = Random::new();
        let mut labels = Labels { text: String::new(), ends: Vec::with_capacity(LABELS) };
        let mut distinct: Vec<u32> = Vec::with_capacity(DISTINCT);
        for left in (1..=LABELS).rev() {
            if distinct.is_empty() || random.below(left) < DISTINCT - distinct.len() {
                distinct.push(labels.ends.len() as u32);
                labels.text.push_str(&label(&mut random));
                labels.text.push_str(&format!(",{:06}", distinct.len()));
            } else {
                let rank = (random.unit() * (distinct.len() as f64).ln()).exp() as usize;
                let first = distinct[rank.min(distinct.len()) - 1] as usize;
                labels.text.extend_from_within(labels.range(first));
            }
            labels.ends.push(labels.text.len() as u32);
        }
        labels
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let end = *end as usize;
            let label = &self.text[start..end];
            start = end;
            label
        })
    }

    fn range(&self, index: usize) -> std::ops::Range<usize> {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        start..self.ends[index] as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn labels_are_as_described() {
        let labels = Labels::new();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        labels.iter().for_each(|label| *counts.entry(label).or_default() += 1);
        assert_eq!((labels.iter().count(), counts.len()), (LABELS, DISTINCT));
        let mean = labels.text.len() as f64 / LABELS as f64;
        assert!((43.0..45.0).contains(&mean), "{mean}");
        assert!(counts.values().max().unwrap() > &10_000);
    }
}
