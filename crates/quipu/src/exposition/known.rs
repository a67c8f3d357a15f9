//! A cache of the families that an encoder wrote before, with their checks and rendered parts.
//!
//! Most pages consist of the same families in the same order as the page before. The cache keeps
//! this order, because a family is then found without a search. After a change, a page is checked
//! and rendered again from the changed family on.

use super::page::{FamilyCheck, Relation};
use super::text::Text;
use crate::snapshot::FamilyKey;

/// A family that was checked and rendered.
#[derive(Debug, Default)]
pub(super) struct RenderedFamily {
    key: Option<FamilyKey>,
    /// The relation to the family before it, which the rendered parts depend on.
    relation: Relation,
    pub(super) checked: FamilyCheck,
    pub(super) text: Text,
    /// The memory that is counted in [`KnownFamilies::size`].
    size: usize,
}

/// The families of the last page.
#[derive(Debug, Default)]
pub(super) struct KnownFamilies {
    #[expect(clippy::vec_box, reason = "a swap moves a pointer instead of the family")]
    families: Vec<Box<RenderedFamily>>,
    /// The current family. It is taken out of the list, because a loop over its series then needs
    /// no index.
    pub(super) current: Box<RenderedFamily>,
    /// The place of the current family in the list, if it belongs to the list.
    at: Option<usize>,
    /// The place of the next family.
    next: usize,
    /// The memory of all families in the list, in bytes.
    size: usize,
}

/// From this size on, no family is added.
const FULL: usize = 2 << 20;
/// A list of a greater size loses families: they grew, because they got more label values.
const MAX_SIZE: usize = 2 * FULL;
/// The families above this size are the first to go.
const GREAT: usize = FULL / 2;

impl KnownFamilies {
    /// Returns the memory of all families, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Starts a page of the same format.
    pub(super) fn rewind(&mut self) {
        self.put_back();
        self.next = 0;
        if self.size > MAX_SIZE {
            self.shrink();
        }
        // A series before the first family does not belong to the last page's family. That family's
        // cache entry requires its rendered parts, so both are dropped.
        self.current.key = None;
        self.current.text.clear();
    }

    /// Drops the great families, which are rendered for each page then, or all if that is not
    /// enough.
    fn shrink(&mut self) {
        for known in self.families.iter_mut().filter(|known| known.size > GREAT) {
            self.size -= known.size;
            **known = RenderedFamily::default();
        }
        if self.size > MAX_SIZE {
            self.families = Vec::new();
            self.size = 0;
        }
    }

    /// Forgets all families, and keeps their memory.
    pub(super) fn forget(&mut self) {
        self.rewind();
        for known in &mut self.families {
            known.key = None;
            known.text.clear();
        }
    }

    /// Makes a family the current one. Returns whether its checks and its parts are still right.
    /// Otherwise, the caller replaces both.
    pub(super) fn choose(&mut self, key: Option<FamilyKey>, relation: Relation) -> bool {
        self.put_back();
        if key.is_some() {
            let at = self.next;
            if at == self.families.len() && self.size < FULL {
                self.families.push(Box::default());
            }
            if let Some(known) = self.families.get_mut(at) {
                std::mem::swap(known, &mut self.current);
                self.at = Some(at);
                self.next += 1;
            }
        }
        let known = &mut *self.current;
        let is_known = key.is_some() && known.key == key && known.relation == relation;
        known.key = key;
        known.relation = relation;
        is_known
    }

    fn put_back(&mut self) {
        let Some(known) = self.at.take().and_then(|at| self.families.get_mut(at)) else { return };
        std::mem::swap(known, &mut self.current);
        let size = size_of::<RenderedFamily>() + known.text.size();
        self.size = self.size - known.size + size;
        known.size = size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the keys of the list, from its start.
    fn walk(families: &mut KnownFamilies, keys: &[FamilyKey]) -> Vec<bool> {
        families.rewind();
        keys.iter().map(|key| families.choose(Some(*key), Relation::New)).collect()
    }

    #[test]
    fn families_are_known_up_to_the_first_change_and_once_more_after_it() {
        let keys: Vec<FamilyKey> = (0..4).map(|_| FamilyKey::new()).collect();
        let mut families = KnownFamilies::default();
        assert_eq!(walk(&mut families, &keys), [false; 4]);
        assert_eq!(walk(&mut families, &keys), [true; 4]);
        let other = [keys[0], FamilyKey::new(), keys[1], keys[2], keys[3]];
        assert_eq!(walk(&mut families, &other), [true, false, false, false, false]);
        assert_eq!(walk(&mut families, &other), [true; 5]);
        // Without a key, a family takes no place.
        families.rewind();
        assert!(families.choose(Some(other[0]), Relation::New));
        assert!(!families.choose(None, Relation::New));
        assert!(families.choose(Some(other[1]), Relation::New));
        assert!(!families.choose(Some(other[2]), Relation::Second));
        families.forget();
        assert_eq!(walk(&mut families, &other), [false; 5]);
    }

    #[test]
    fn the_only_family_beyond_a_full_list_is_rendered_for_each_page() {
        let mut families = KnownFamilies::default();
        let count = 2 * FULL / size_of::<RenderedFamily>();
        let keys: Vec<FamilyKey> = (0..count).map(|_| FamilyKey::new()).collect();
        walk(&mut families, &keys);
        let kept = families.families.len();
        let keys = &keys[..kept + 1];
        walk(&mut families, keys);
        assert_eq!(walk(&mut families, keys).last(), Some(&false));
        families.forget();
        assert_eq!(walk(&mut families, keys).last(), Some(&false));
    }

    #[test]
    fn a_great_family_does_not_displace_the_others() {
        let mut families = KnownFamilies::default();
        let keys = [(); 3].map(|()| FamilyKey::new());
        walk(&mut families, &keys);
        families.rewind();
        let grown = 2 * MAX_SIZE;
        families.size += grown - families.families[1].size;
        families.families[1].size = grown;
        assert_eq!(walk(&mut families, &keys), [true, false, true]);
    }

    #[test]
    fn a_full_list_takes_no_more_families() {
        let mut families = KnownFamilies::default();
        let count = 2 * FULL / size_of::<RenderedFamily>();
        let keys: Vec<FamilyKey> = (0..count).map(|_| FamilyKey::new()).collect();
        walk(&mut families, &keys);
        families.rewind();
        assert!((FULL..FULL + 2 * size_of::<RenderedFamily>()).contains(&families.size));
        let kept = families.families.len();
        let known = walk(&mut families, &keys);
        assert!(known[..kept].iter().all(|is_known| *is_known));
        assert!(!known[kept..].contains(&true));
    }
}
