//! A cache of family metadata (type, help and unit), because remote write 1.0 sends metadata
//! separately from samples. The cache is only in memory, because Prometheus repeats the metadata
//! every minute.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use quipu_wire::remote::write::{FamilyMetadata, SeriesType};

use crate::types;

/// The metadata of families, by name. All threads share it.
#[derive(Default)]
pub struct MetadataCache {
    by_name: RwLock<HashMap<Box<str>, Arc<OwnedMetadata>>>,
    changes: AtomicU64,
}

/// The metadata of a family.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OwnedMetadata {
    pub(super) series_type: SeriesType,
    pub(super) help: Box<str>,
    pub(super) unit: Box<str>,
}

/// The maximum number of families in the cache. Others are not cached.
const MAX_FAMILIES: usize = 20_000;
/// The maximum size of a family's metadata in bytes. Larger metadata is not cached.
const MAX_BYTES: usize = 1024;

impl MetadataCache {
    /// Caches the metadata of a family.
    pub(super) fn put(&self, family: &FamilyMetadata<'_>) {
        let metadata = family.metadata;
        let bytes = family.name.len() + metadata.help.len() + metadata.unit.len();
        if family.name.is_empty() || bytes > MAX_BYTES {
            return;
        }
        let is_same = |known: &OwnedMetadata| {
            known.series_type == metadata.series_type
                && *known.help == *metadata.help
                && *known.unit == *metadata.unit
        };
        let families = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        match families.get(family.name) {
            Some(known) if is_same(known) => return,
            None if families.len() >= MAX_FAMILIES => return,
            _ => drop(families),
        }
        let known = OwnedMetadata {
            series_type: metadata.series_type,
            help: metadata.help.into(),
            unit: metadata.unit.into(),
        };
        let mut families = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        families.insert(family.name.into(), Arc::new(known));
        // We increment under the lock, because a thread that reads the new number must find the
        // family.
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of changes so far, to detect outdated copies.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Returns the metadata of the family that a series with this name belongs to.
    pub(super) fn find(&self, name: &str) -> Option<Arc<OwnedMetadata>> {
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
    use quipu_wire::remote::write::{Entry, WriteReader, WriteVersion};

    use super::*;

    fn put(families: &MetadataCache, request: &[u8]) {
        let mut reader = WriteReader::new(WriteVersion::One, request).unwrap();
        while let Some(Ok(Entry::Family(family))) = reader.next() {
            families.put(&family);
        }
    }

    #[test]
    fn a_series_has_the_metadata_of_its_family() {
        let families = MetadataCache::default();
        assert!(families.find("took_bucket").is_none());
        put(&families, b"\x1a\x0e\x08\x03\x12\x04took\x22\x01h\x2a\x01s");
        put(&families, b"\x1a\x0a\x08\x02\x12\x06took_x");
        let known = families.find("took_bucket").unwrap();
        assert_eq!(
            (known.series_type, &*known.help, &*known.unit),
            (SeriesType::Histogram, "h", "s")
        );
        assert_eq!(families.find("took_x").unwrap().series_type, SeriesType::Gauge);
        assert!(families.find("other").is_none());
        put(&families, b"\x1a\x08\x08\x01\x12\x04took");
        assert_eq!(families.find("took").unwrap().series_type, SeriesType::Counter);
        for n in 0..MAX_FAMILIES + 5 {
            let name = format!("{n:06}");
            put(&families, &[b"\x1a\x08\x12\x06", name.as_bytes()].concat());
        }
        assert_eq!(families.by_name.read().unwrap().len(), MAX_FAMILIES);
        let long = [b"\x1a\x84\x08\x12\x81\x08".to_vec(), vec![b'a'; 1025]].concat();
        put(&families, &long);
        assert!(families.find(&"a".repeat(1025)).is_none());
    }
}
