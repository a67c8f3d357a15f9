//! A set of names that threads share. A fork at any moment leaves it intact.
//!
//! This set is a hash table whose lists of names are immutable: adding a name creates a new first
//! entry, which replaces the old one in a single store. In the same way, a full table is replaced
//! by a table of twice the size. So the cost of a name does not grow with their number, except that
//! the entry is in the CPU's cache less often.

use std::hash::BuildHasher;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quipu_segment::ForkSafeCell;
use quipu_segment::hash::SeededState;

/// A set of names.
pub(crate) struct NameSet {
    /// The lists; their number is a power of two. A thread that changes a list holds the lock of
    /// the table.
    table: ForkSafeCell<Box<[ForkSafeCell<List>]>>,
    /// The number of names. In a child of a fork, the count may be off by one, because a thread
    /// of the parent was adding or removing a name: only the size of the table depends on it.
    count: AtomicUsize,
    hasher: SeededState,
}

/// The names whose hashes end in the same bits.
type List = Option<Arc<NameEntry>>;

struct NameEntry {
    hash: u64,
    name: Arc<str>,
    next: List,
}

impl NameSet {
    pub(crate) fn has(&self, name: &str) -> bool {
        let hash = self.hasher.hash_one(name);
        self.table.read(|table| {
            table[index(hash, table.len())].read(|list| find(list, hash, name).is_some())
        })
    }

    /// Adds a name; returns false if the set already contains it.
    pub(crate) fn claim(&self, name: &str) -> bool {
        let hash = self.hasher.hash_one(name);
        // Counted before it can be released: the count never falls below zero.
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        let (is_new, lists) = self.table.read(|table| {
            let is_new =
                table[index(hash, table.len())].replace(|list| match find(list, hash, name) {
                    Some(_) => (None, false),
                    None => (Some(push(list.clone(), hash, name.into())), true),
                });
            (is_new, table.len())
        });
        if !is_new {
            self.count.fetch_sub(1, Ordering::Relaxed);
        } else if before >= lists {
            self.grow(lists);
        }
        is_new
    }

    /// Removes a name; returns false if the set does not contain it.
    pub(crate) fn release(&self, name: &str) -> bool {
        let hash = self.hasher.hash_one(name);
        let was_there = self.table.read(|table| {
            table[index(hash, table.len())].replace(|list| match find(list, hash, name) {
                Some(entry) => (Some(without(list, entry)), true),
                None => (None, false),
            })
        });
        if was_there {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        was_there
    }

    /// Replaces the table by one of twice the size, unless another thread was faster.
    fn grow(&self, lists: usize) {
        self.table.replace(|table| {
            if table.len() != lists {
                return (None, ());
            }
            let mut grown: Vec<List> = iter::repeat_with(|| None).take(2 * lists).collect();
            for list in table {
                list.read(|list| {
                    for NameEntry { hash, name, .. } in entries(list) {
                        let list = &mut grown[index(*hash, 2 * lists)];
                        *list = push(list.take(), *hash, Arc::clone(name));
                    }
                });
            }
            (Some(grown.into_iter().map(ForkSafeCell::new).collect()), ())
        });
    }
}

impl Default for NameSet {
    fn default() -> Self {
        let table = ForkSafeCell::new([ForkSafeCell::default()].into());
        Self { table, count: AtomicUsize::new(0), hasher: SeededState::default() }
    }
}

/// Returns the list of a hash in a table of `lists` lists, a power of two.
fn index(hash: u64, lists: usize) -> usize {
    // The truncation is intended: only the lower bits count.
    hash as usize & (lists - 1)
}

fn entries(list: &List) -> impl Iterator<Item = &NameEntry> {
    iter::successors(list.as_deref(), |entry| entry.next.as_deref())
}

fn find<'l>(list: &'l List, hash: u64, name: &str) -> Option<&'l NameEntry> {
    entries(list).find(|entry| entry.hash == hash && *entry.name == *name)
}

fn push(next: List, hash: u64, name: Arc<str>) -> List {
    Some(Arc::new(NameEntry { hash, name, next }))
}

/// Returns a list without one of its entries. The entries after it are shared.
fn without(list: &List, gone: &NameEntry) -> List {
    let before = entries(list).take_while(|entry| !std::ptr::eq(*entry, gone));
    before.fold(gone.next.clone(), |rest, entry| push(rest, entry.hash, Arc::clone(&entry.name)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_claimed_once_until_they_are_released() {
        let (set, mut model) = (NameSet::default(), BTreeSet::new());
        let count = if cfg!(miri) { 60 } else { 2000 };
        // A linear congruential generator: names are claimed and released in an irregular order.
        let mut state = 1_u32;
        for _ in 0..4 * count {
            state = state.wrapping_mul(0x915f_77f5).wrapping_add(1);
            let name = format!("name {}", (state >> 8) % count);
            if state >> 31 == 0 {
                assert_eq!(set.claim(&name), model.insert(name.clone()), "{name}");
            } else {
                assert_eq!(set.release(&name), model.remove(&name), "{name}");
            }
        }
        for number in 0..count {
            let name = format!("name {number}");
            assert_eq!(set.has(&name), model.contains(&name), "{name}");
        }
        assert_eq!(set.count.load(Ordering::Relaxed), model.len());
        model.iter().for_each(|name| assert!(set.release(name), "{name}"));
        set.table.read(|table| {
            assert!(table.iter().all(|list| list.read(Option::is_none)));
        });
    }

    #[test]
    fn a_name_is_removed_from_any_place_of_a_list() {
        let names = ["a", "b", "c", "d"];
        for gone in names {
            // The hash is the same for all.
            let list = names.iter().fold(None, |list, name| push(list, 7, (*name).into()));
            let list = without(&list, find(&list, 7, gone).expect("it is there"));
            let left: BTreeSet<&str> = entries(&list).map(|entry| &*entry.name).collect();
            assert_eq!(left, names.into_iter().filter(|name| *name != gone).collect());
        }
    }

    #[test]
    fn threads_claim_each_name_once() {
        let (set, claimed) = (NameSet::default(), AtomicUsize::new(0));
        let count = if cfg!(miri) { 30 } else { 3000 };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for number in 0..count {
                        let is_new = set.claim(&number.to_string());
                        claimed.fetch_add(usize::from(is_new), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(claimed.into_inner(), count);
        assert!((0..count).all(|number| set.has(&number.to_string())));
    }
}
