//! A million labels, each looked up, and copied if it is new: either all are different, or half.
//!
//! Each run creates a new arena and a new table. Freeing them is not timed, because an interner
//! lives as long as its program. Before a run, the C library returns freed memory to the system,
//! because all runs must start from the same heap. The table provides room for all labels from the
//! start. It is the same for all subjects, except that the heap's table owns its strings.
//!
//! Memory is the growth of the resident pages after the different labels were copied, in a separate
//! process for each subject. It excludes reserved memory that the arena has not touched yet. The
//! list of handles exists before, and there is no table.

use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use hashbrown::HashTable;
use rapidhash::v3::{DEFAULT_RAPID_SECRETS, rapidhash_v3_micro_inline};

use super::data::{NAMES, Random, TYPES};
use super::library::{
    BlinkAlloc, BumpScopeDown, BumpScopeUp, Bumpalo, Library, QuipuDown, QuipuUp,
};
use super::{MALLOC, per_operation};
use crate::measure::{Case, Options, black_box};
use crate::memory::resident_bytes;
use crate::record::{Label, Record};

/// The number of labels.
const LABELS: usize = 1_000_000;

/// The names of the cases, and the number of different labels.
const CASES: [(&str, usize); 2] =
    [("arena/intern", LABELS), ("arena/intern, half of them known", LABELS / 2)];

pub(super) fn run(options: &Options) -> Vec<Record> {
    let mut records = Vec::new();
    for (name, distinct) in CASES {
        let labels = Labels::new(distinct);
        fn add<'a, L: Library>(case: Case<'a>, labels: &'a Labels) -> Case<'a> {
            case.timed(&L::name(), |_, n| (0..n).map(|_| in_an_arena::<L>(labels)).sum())
        }
        let case = Case::new(name);
        let case = add::<QuipuUp>(case, &labels);
        let case = add::<QuipuDown>(case, &labels);
        let case = add::<BumpScopeUp>(case, &labels);
        let case = add::<BumpScopeDown>(case, &labels);
        let case = add::<Bumpalo>(case, &labels);
        let case = add::<BlinkAlloc>(case, &labels);
        let case = case.timed(MALLOC, |_, n| (0..n).map(|_| on_the_heap(&labels)).sum());
        records.extend(per_operation(LABELS, case.run(options)));
    }
    records.extend(SUBJECTS.iter().filter_map(memory));
    records
}

/// A subject: its name, and a function that returns the memory of its copies in this process.
type Subject = (fn() -> String, fn(&Labels) -> i64);

const SUBJECTS: [Subject; 7] = [
    (QuipuUp::name, resident_in_an_arena::<QuipuUp>),
    (QuipuDown::name, resident_in_an_arena::<QuipuDown>),
    (BumpScopeUp::name, resident_in_an_arena::<BumpScopeUp>),
    (BumpScopeDown::name, resident_in_an_arena::<BumpScopeDown>),
    (Bumpalo::name, resident_in_an_arena::<Bumpalo>),
    (BlinkAlloc::name, resident_in_an_arena::<BlinkAlloc>),
    (|| MALLOC.into(), resident_on_the_heap),
];

/// The memory of a subject, measured in a new process.
fn memory((name, _): &Subject) -> Option<Record> {
    let program = std::env::current_exe().ok()?;
    let output = Command::new(program).args(["--resident", &name()]).output().ok()?;
    let bytes: f64 = String::from_utf8(output.stdout).ok()?.trim().parse().ok()?;
    Some(Label::new(CASES[0].0, &name(), "memory", "B").of(&[bytes / LABELS as f64]))
}

/// Returns the resident bytes of a subject's copies of the labels, in this process; `None` for an
/// unknown subject.
pub fn resident(subject: &str) -> Option<i64> {
    let (_, resident) = SUBJECTS.iter().find(|(name, _)| name() == subject)?;
    Some(resident(&Labels::new(LABELS)))
}

fn resident_in_an_arena<L: Library>(labels: &Labels) -> i64 {
    // The arena starts with the library's initial size; the pages of the list are already touched.
    let arena = L::new();
    let mut copies = vec![""; LABELS];
    let before = resident_bytes();
    copies.iter_mut().zip(labels.iter()).for_each(|(copy, label)| *copy = arena.text(label));
    let bytes = resident_bytes() - before;
    black_box(copies);
    bytes
}

fn resident_on_the_heap(labels: &Labels) -> i64 {
    let mut copies = vec![Box::<str>::default(); LABELS];
    let before = resident_bytes();
    copies.iter_mut().zip(labels.iter()).for_each(|(copy, label)| *copy = label.into());
    let bytes = resident_bytes() - before;
    black_box(copies);
    bytes
}

/// Returns freed memory of earlier runs to the system, because each run must start from the same
/// heap.
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: It takes the locks of the heaps that it examines.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The time to intern all labels in an arena.
fn in_an_arena<L: Library>(labels: &Labels) -> Duration {
    trim();
    // The arena is dropped after the table, and created after the table is allocated.
    let arena;
    let mut table = HashTable::with_capacity(labels.distinct);
    arena = L::new();
    let start = Instant::now();
    for label in labels.iter() {
        black_box(interned(&mut table, label, |label| arena.text(label)));
    }
    let elapsed = start.elapsed();
    assert_eq!(table.len(), labels.distinct);
    elapsed
}

fn on_the_heap(labels: &Labels) -> Duration {
    trim();
    let mut table = HashTable::with_capacity(labels.distinct);
    let start = Instant::now();
    for label in labels.iter() {
        black_box(interned(&mut table, label, Box::<str>::from));
    }
    let elapsed = start.elapsed();
    assert_eq!(table.len(), labels.distinct);
    elapsed
}

/// Returns the table's copy of a label, and makes this copy if there is none.
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

/// The labels in input order, concatenated in one string.
struct Labels {
    text: String,
    ends: Vec<u32>,
    /// The number of different labels.
    distinct: usize,
}

impl Labels {
    /// Makes labels at random positions, `distinct` of them new. Each other label repeats an
    /// earlier one, chosen in proportion to 1/rank.
    fn new(distinct: usize) -> Labels {
        let mut random = Random::new();
        let mut labels = Labels { text: String::new(), ends: Vec::with_capacity(LABELS), distinct };
        let mut firsts: Vec<u32> = Vec::with_capacity(distinct);
        for left in (1..=LABELS).rev() {
            if firsts.is_empty() || random.below(left) < distinct - firsts.len() {
                firsts.push(labels.ends.len() as u32);
                let (name, kind) = (random.of(NAMES), random.of(TYPES));
                let trainer = firsts.len();
                let _ = write!(labels.text, "name={name},trainer=ash{trainer:07},type={kind}");
            } else {
                let rank = (random.unit() * (firsts.len() as f64).ln()).exp() as usize;
                let first = firsts[rank.min(firsts.len()) - 1] as usize;
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
        for (_, distinct) in CASES {
            let labels = Labels::new(distinct);
            let mut counts: HashMap<&str, usize> = HashMap::new();
            labels.iter().for_each(|label| *counts.entry(label).or_default() += 1);
            assert_eq!((labels.iter().count(), counts.len()), (LABELS, distinct));
            let mean = labels.text.len() as f64 / LABELS as f64;
            assert!((42.0..46.0).contains(&mean), "{mean}");
        }
    }

    #[test]
    fn every_subject_has_a_name_of_its_own() {
        let mut names: Vec<String> = SUBJECTS.iter().map(|(name, _)| name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), SUBJECTS.len());
        assert!(resident("unknown").is_none());
    }
}
