//! The ids of a writer's series, and an index to find them.

use alloc::vec::Vec;

use hashbrown::HashTable;

use super::{MAX_IDS, MAX_SERIES, code};
use crate::hash::Secrets;
use crate::message::Kind;

/// The series of a writer, oldest first.
#[derive(Default)]
pub(super) struct Index {
    names: Vec<Name>,
    /// The concatenated ids.
    ids: Vec<u8>,
    table: HashTable<u32>,
    secrets: Secrets,
}

/// The name of a series: its kind and the range of its id.
#[derive(Clone, Copy)]
struct Name {
    start: u32,
    len: u32,
    kind: Kind,
}

impl Index {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the hash of a name.
    #[inline(always)]
    pub(super) fn hash(&self, kind: Kind, id: &[u8]) -> u64 {
        hash(kind, id, &self.secrets)
    }

    /// Finds a series by its name.
    #[inline(always)]
    pub(super) fn find(&self, kind: Kind, id: &[u8], hash: u64) -> Option<u32> {
        let found = self.table.find(hash, |index| {
            let name = &self.names[*index as usize];
            name.kind == kind && name.id(&self.ids) == id
        });
        found.copied()
    }

    /// Returns whether another series with an id of this length would not fit.
    pub(super) fn is_full(&self, len: usize) -> bool {
        self.names.len() == MAX_SERIES || self.ids.len() + len > MAX_IDS
    }

    /// Adds a series.
    pub(super) fn insert(&mut self, kind: Kind, id: &[u8], hash: u64) -> u32 {
        let index = self.names.len() as u32;
        let (start, len) = (self.ids.len() as u32, id.len() as u32);
        self.names.push(Name { start, len, kind });
        self.ids.extend_from_slice(id);
        let (names, ids, secrets) = (&self.names, &self.ids, &self.secrets);
        self.table.insert_unique(hash, index, |index| {
            let name = &names[*index as usize];
            self::hash(name.kind, name.id(ids), secrets)
        });
        index
    }

    /// Returns the id of a series.
    pub(super) fn id(&self, index: u32) -> &[u8] {
        self.names[index as usize].id(&self.ids)
    }

    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.ids.clear();
        self.table.clear();
    }
}

impl Name {
    #[inline(always)]
    fn id<'a>(&self, ids: &'a [u8]) -> &'a [u8] {
        &ids[self.start as usize..][..self.len as usize]
    }
}

#[inline(always)]
fn hash(kind: Kind, id: &[u8], secrets: &Secrets) -> u64 {
    secrets.hash(id) ^ (code(kind) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
