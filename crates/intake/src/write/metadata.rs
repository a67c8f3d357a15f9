//! What senders of remote write 1.0 say of families, in messages apart from their samples.
//!
//! It is in memory: Prometheus sends it again every minute.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use quipu_wire::remote::{FamilyMetadata, SeriesType};

use crate::types;

/// What is known of families, by name. All threads share it.
#[derive(Default)]
pub struct Families {
    by_name: RwLock<HashMap<Box<str>, Arc<Known>>>,
    changes: AtomicU64,
}

/// What is known of a family.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) series_type: SeriesType,
    pub(super) help: Box<str>,
    pub(super) unit: Box<str>,
}

/// The most families, and the most bytes of the texts of one: beyond, nothing is kept.
const MOST: usize = 20_000;
const MOST_BYTES: usize = 1024;

impl Families {
    /// Keeps what is said of a family.
    pub(super) fn put(&self, family: &FamilyMetadata<'_>) {
        let metadata = family.metadata;
        let bytes = family.name.len() + metadata.help.len() + metadata.unit.len();
        if family.name.is_empty() || bytes > MOST_BYTES {
            return;
        }
        let is_known = |known: &Known| {
            known.series_type == metadata.series_type
                && *known.help == *metadata.help
                && *known.unit == *metadata.unit
        };
        let families = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        match families.get(family.name) {
            Some(known) if is_known(known) => return,
            None if families.len() >= MOST => return,
            _ => drop(families),
        }
        let known = Known {
            series_type: metadata.series_type,
            help: metadata.help.into(),
            unit: metadata.unit.into(),
        };
        let mut families = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        families.insert(family.name.into(), Arc::new(known));
        // With the lock: a thread that sees the number finds the family.
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// How often what is known has changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// What is known of the family that a series of this name belongs to.
    pub(super) fn of_series(&self, name: &str) -> Option<Arc<Known>> {
        let families = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        if families.is_empty() {
            return None;
        }
        let known = families.get(name);
        let known = known.or_else(|| families.get(types::family_name(name)?));
        known.cloned()
    }
}

#[cfg(test)]
mod tests {
    use quipu_wire::remote::{Entry, WriteReader, WriteVersion};

    use super::*;

    fn put(families: &Families, request: &[u8]) {
        let mut reader = WriteReader::new(WriteVersion::One, request).unwrap();
        while let Some(Ok(Entry::Family(family))) = reader.next() {
            families.put(&family);
        }
    }

    #[test]
    fn a_series_has_what_its_family_has() {
        let families = Families::default();
        assert!(families.of_series("took_bucket").is_none());
        put(&families, b"\x1a\x0e\x08\x03\x12\x04took\x22\x01h\x2a\x01s");
        put(&families, b"\x1a\x0a\x08\x02\x12\x06took_x");
        let known = families.of_series("took_bucket").unwrap();
        assert_eq!(
            (known.series_type, &*known.help, &*known.unit),
            (SeriesType::Histogram, "h", "s")
        );
        assert_eq!(families.of_series("took_x").unwrap().series_type, SeriesType::Gauge);
        assert!(families.of_series("other").is_none());
        put(&families, b"\x1a\x08\x08\x01\x12\x04took");
        assert_eq!(families.of_series("took").unwrap().series_type, SeriesType::Counter);
        for n in 0..MOST + 5 {
            let name = format!("{n:06}");
            put(&families, &[b"\x1a\x08\x12\x06", name.as_bytes()].concat());
        }
        assert_eq!(families.by_name.read().unwrap().len(), MOST);
        let long = [b"\x1a\x84\x08\x12\x81\x08".to_vec(), vec![b'a'; 1025]].concat();
        put(&families, &long);
        assert!(families.of_series(&"a".repeat(1025)).is_none());
    }
}
