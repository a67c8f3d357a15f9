//! The index of groups: for each group, its families with their series, and the times of its
//! pushes. The values are not here; they are in the segment. The index is only in memory, and
//! [`super::restore`] rebuilds it from the segment when the daemon starts.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use quipu_segment::hash::SeededState;

use super::builder::Kind;
use super::names::NameTypes;
use super::packed::{self, SeriesSet};
use super::spots::Spots;

/// The identity of a group: its packed labels (see [`super::path::Grouping::key`]).
pub(super) type Key = Arc<[u8]>;

/// Nanoseconds since 1970.
pub(super) type Nanos = u64;

/// All groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: HashMap<Key, Group, SeededState>,
    names: NameTypes,
    /// The distinct sets of label names that groups use. See [`Groups::rival`].
    shapes: Vec<Shape>,
    /// The groups that will expire, by time.
    deadlines: BTreeSet<(Nanos, Key)>,
    /// The groups that have expired and keep their totals, by time of expiry.
    expired: BTreeSet<(Nanos, Key)>,
}

/// The families and the push times of a group.
#[derive(Debug, Default)]
pub(super) struct Group {
    families: Vec<GroupFamily>,
    /// The time of the last successful push; 0 if there is none.
    pub(super) pushed: Nanos,
    /// The time of the last failed push; 0 if there is none.
    pub(super) failed: Nanos,
    /// The time after which the group expires, if the push set one; zero for never.
    pub(super) ttl: Option<Duration>,
    /// The time when the group expires or expired.
    deadline: Option<Nanos>,
    is_expired: bool,
    /// Whether any push was added to the current values, instead of replacing them.
    pub(super) adds: bool,
    /// The identifiers of the last added pushes, as hashes, with the error message of each
    /// response; the oldest first. They detect repeated pushes.
    ids: Vec<(u64, Option<Box<str>>)>,
    /// The cached handles of the group's series.
    spots: Option<Spots>,
}

/// A family of a group.
#[derive(Debug, Clone)]
pub(super) struct GroupFamily {
    pub(super) name: Arc<str>,
    pub(super) kind: Kind,
    /// The time of the last push that contained the family.
    pub(super) time: Nanos,
    /// The labels of the series, without the labels of the group. Groups that receive bodies with
    /// the same [form](super::forms) share this set.
    pub(super) series: Arc<SeriesSet>,
}

/// A set of label names that several groups use.
#[derive(Debug)]
struct Shape {
    names: Vec<Box<str>>,
    groups: usize,
}

impl Groups {
    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn group(&self, key: &[u8]) -> Option<&Group> {
        self.groups.get(key)
    }

    /// Returns a group for changes of fields that no index depends on.
    pub(super) fn group_mut(&mut self, key: &[u8]) -> Option<&mut Group> {
        self.groups.get_mut(key)
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.groups.keys().cloned().collect()
    }

    pub(super) fn names(&self) -> &NameTypes {
        &self.names
    }

    /// Returns whether a group with these label names can be added, within the limit on distinct
    /// sets of label names.
    pub(super) fn has_room_for_shape(&self, key: &[u8]) -> bool {
        self.shapes.len() < MAX_SHAPES || self.shapes.iter().any(|shape| shape.is_of(key))
    }

    /// Returns the group, and creates it if it does not exist.
    pub(super) fn create(&mut self, key: &Key) -> &mut Group {
        if !self.groups.contains_key(key) {
            match self.shapes.iter_mut().find(|shape| shape.is_of(key)) {
                Some(shape) => shape.groups += 1,
                None => {
                    let names = packed::unpack(key).map(|(name, _)| name.into()).collect();
                    self.shapes.push(Shape { names, groups: 1 });
                }
            }
        }
        self.groups.entry(key.clone()).or_default()
    }

    /// Removes a group, and returns its families.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Vec<GroupFamily>> {
        let (key, group) = self.groups.remove_entry(key)?;
        if let Some(deadline) = group.deadline {
            let place = (deadline, key.clone());
            self.deadlines.remove(&place);
            self.expired.remove(&place);
        }
        if let Some(at) = self.shapes.iter().position(|shape| shape.is_of(&key)) {
            self.shapes[at].groups -= 1;
            if self.shapes[at].groups == 0 {
                self.shapes.swap_remove(at);
            }
        }
        for family in &group.families {
            self.names.remove(&family.name, family.kind);
        }
        Some(group.families)
    }

    /// Adds a family to a group. Returns the family that it replaces, if any.
    pub(super) fn put(&mut self, key: &[u8], mut family: GroupFamily) -> Option<GroupFamily> {
        let group = self.groups.get_mut(key)?;
        family.name = self.names.add(&family.name, family.kind);
        let place = group.families.iter_mut().find(|other| other.name == family.name);
        let before = match place {
            Some(place) => Some(std::mem::replace(place, family)),
            None => {
                group.families.push(family);
                None
            }
        };
        if let Some(before) = &before {
            self.names.remove(&before.name, before.kind);
        }
        before
    }

    /// Removes series from a family, and the family itself if no series remain.
    pub(super) fn forget(&mut self, key: &[u8], name: &str, series: &SeriesSet) {
        let Some(group) = self.groups.get_mut(key) else { return };
        let Some(family) = group.family_mut(name) else { return };
        family.series = Arc::new(family.series.without(series));
        if family.series.len() == 0 {
            self.retain(key, |family| *family.name != *name);
        }
    }

    /// Keeps only the families for which `is_kept` returns true, and returns the others.
    pub(super) fn retain(
        &mut self,
        key: &[u8],
        mut keep: impl FnMut(&GroupFamily) -> bool,
    ) -> Vec<GroupFamily> {
        let Some(group) = self.groups.get_mut(key) else { return Vec::new() };
        let gone: Vec<GroupFamily> =
            group.families.extract_if(.., |family| !keep(family)).collect();
        for family in &gone {
            self.names.remove(&family.name, family.kind);
        }
        gone
    }

    /// Sets the time when a group expires, and makes an expired group active again.
    pub(super) fn set_deadline(&mut self, key: &Key, deadline: Option<Nanos>) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.is_expired = false;
        if let Some(before) = std::mem::replace(&mut group.deadline, deadline) {
            let place = (before, key.clone());
            self.deadlines.remove(&place);
            self.expired.remove(&place);
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, key.clone()));
        }
    }

    /// Returns the group with the earliest deadline, if this deadline has passed.
    pub(super) fn next_to_expire(&self, now: Nanos) -> Option<Key> {
        self.deadlines.first().filter(|(deadline, _)| *deadline <= now).map(|(_, key)| key.clone())
    }

    pub(super) fn expire(&mut self, key: &Key) {
        let Some(group) = self.groups.get_mut(key) else { return };
        let Some(deadline) = group.deadline else { return };
        group.is_expired = true;
        // We free the spots, because an expired group may stay in memory for long.
        group.spots = None;
        let place = (deadline, key.clone());
        self.deadlines.remove(&place);
        self.expired.insert(place);
    }

    /// Returns the group that expired first, as the first candidate for removal.
    pub(super) fn oldest_expired(&self) -> Option<Key> {
        self.expired.first().map(|(_, key)| key.clone())
    }

    /// Finds another group that already contains a series with these labels. `key` is the group of
    /// the pushed series, and `labels` are all labels of the series, sorted by name, without an
    /// empty `instance`.
    pub(super) fn rival(&self, key: &[u8], name: &str, labels: &[(&str, &str)]) -> Option<Key> {
        let mut packed = Vec::new();
        for shape in &self.shapes {
            let Some(rival) = shape.key(labels, &mut packed) else { continue };
            if *rival == *key {
                continue;
            }
            let Some((rival, group)) = self.groups.get_key_value(rival) else { continue };
            let Some(family) = group.family(name) else { continue };
            let own = labels.iter().filter(|label| !shape.has(label.0)).copied();
            if family.series.contains(&packed::pack(own)) {
                return Some(rival.clone());
            }
        }
        None
    }

    /// Returns whether [`Groups::rival`] can find a group at all. Groups with the same label names
    /// never share a series, so this returns false if all groups use the label names of this group.
    pub(super) fn has_rivals(&self, key: &[u8]) -> bool {
        self.shapes.iter().any(|shape| !shape.is_of(key))
    }

    /// Returns the group of a series from the segment: the matching group with the most labels.
    pub(super) fn owner(&self, labels: &[(&str, &str)]) -> Option<Key> {
        let mut packed = Vec::new();
        let mut shapes: Vec<&Shape> = self.shapes.iter().collect();
        shapes.sort_by_key(|shape| std::cmp::Reverse(shape.names.len()));
        shapes.into_iter().find_map(|shape| {
            let key = shape.key(labels, &mut packed)?;
            self.groups.get_key_value(key).map(|(key, _)| key.clone())
        })
    }
}

impl Group {
    /// Returns whether the group has expired, and stays only because of its totals.
    pub(super) fn is_expired(&self) -> bool {
        self.is_expired
    }

    pub(super) fn families(&self) -> &[GroupFamily] {
        &self.families
    }

    /// Returns the families for changes. Do not change names and types, because the index of names
    /// would then be wrong.
    pub(super) fn families_mut(&mut self) -> &mut [GroupFamily] {
        &mut self.families
    }

    pub(super) fn family(&self, name: &str) -> Option<&GroupFamily> {
        self.families.iter().find(|family| *family.name == *name)
    }

    /// Returns the family with this name, for adding series.
    pub(super) fn family_mut(&mut self, name: &str) -> Option<&mut GroupFamily> {
        self.families.iter_mut().find(|family| *family.name == *name)
    }

    /// Returns the cached spots for a push of this form; empty if the last push had another form.
    pub(super) fn spots(&self, form: u64) -> Spots {
        let known = self.spots.clone().filter(|spots| spots.is_of(form));
        known.unwrap_or_else(|| Spots::new(form))
    }

    /// Stores new spots, if any.
    pub(super) fn keep_spots(&mut self, found: Option<Spots>) {
        self.spots = found.or(self.spots.take());
    }

    /// Finds an earlier push with this identifier. Returns the error message of its response, if
    /// series were refused.
    pub(super) fn find_fault(&self, id: u64) -> Option<Option<&str>> {
        self.ids.iter().find(|(other, _)| *other == id).map(|(_, fault)| fault.as_deref())
    }

    /// Stores the identifier of a push, and the error message of its response. Drops the oldest one
    /// beyond [`MAX_IDS`].
    pub(super) fn remember(&mut self, id: u64, fault: Option<String>) {
        if self.ids.len() == MAX_IDS {
            self.ids.remove(0);
        }
        self.ids.push((id, fault.map(String::into_boxed_str)));
    }
}

impl Shape {
    fn has(&self, name: &str) -> bool {
        self.names.binary_search_by(|other| (**other).cmp(name)).is_ok()
    }

    fn is_of(&self, key: &[u8]) -> bool {
        packed::unpack(key).map(|(name, _)| name).eq(self.names.iter().map(|name| &**name))
    }

    /// Returns the key of the only group with these label names that can contain a series with
    /// these labels, sorted by name. Returns `None` if a label is missing.
    fn key<'p>(&self, labels: &[(&str, &str)], packed: &'p mut Vec<u8>) -> Option<&'p [u8]> {
        packed.clear();
        let mut labels = labels.iter();
        for name in &self.names {
            let label = labels.find(|label| *label.0 == **name)?;
            packed::push(packed, [*label].into_iter());
        }
        Some(packed)
    }
}

/// The number of push identifiers that a group stores.
pub(super) const MAX_IDS: usize = 64;

/// The maximum number of distinct sets of label names. A push looks for conflicting groups once per
/// set, so its duration does not depend on the number of groups.
pub(super) const MAX_SHAPES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(labels: &[(&str, &str)]) -> Key {
        packed::pack(labels.iter().copied()).into()
    }

    fn family(name: &str, kind: Kind, series: &[&[(&str, &str)]]) -> GroupFamily {
        let mut set = SeriesSet::default();
        for labels in series {
            set.insert(&packed::pack(labels.iter().copied()));
        }
        GroupFamily { name: name.into(), kind, time: 1, series: set.into() }
    }

    #[test]
    fn the_index_follows_the_families_of_groups() {
        let mut groups = Groups::default();
        let (a, b) = (key(&[("job", "a")]), key(&[("instance", "i"), ("job", "a")]));
        for key in [&a, &b] {
            groups.create(key);
            let x = family("x", Kind::Gauge, &[&[], &[("n", "1")]]);
            assert!(groups.put(key, x).is_none());
        }
        assert_eq!((groups.len(), groups.names().groups("x", Kind::Gauge)), (2, 2));
        let x = family("x", Kind::Counter, &[&[]]);
        assert_eq!(groups.put(&a, x).unwrap().series.len(), 2);
        assert_eq!(groups.names().groups("x", Kind::Gauge), 1);
        let mut empty = SeriesSet::default();
        empty.insert(&[]);
        groups.forget(&b, "x", &empty);
        let left = groups.group(&b).unwrap().families()[0].series.clone();
        assert!(left.iter().eq([&*packed::pack([("n", "1")].into_iter())]));
        assert_eq!(groups.retain(&a, |_| false).len(), 1);
        assert_eq!(groups.names().groups("x", Kind::Counter), 0);
        groups.forget(&b, "x", &left);
        assert!(groups.remove(&b).unwrap().is_empty());
        assert!(groups.remove(&b).is_none());
        assert_eq!(groups.shapes.len(), 1);
        assert_eq!(groups.names().groups("x", Kind::Gauge), 0);
    }

    #[test]
    fn a_series_of_another_group_is_found() {
        let mut groups = Groups::default();
        let (a, b) = (key(&[("job", "a")]), key(&[("instance", "i"), ("job", "a")]));
        for key in [&a, &b] {
            groups.create(key);
        }
        let x = family("x", Kind::Gauge, &[&[("instance", "i")], &[("n", "1")]]);
        groups.put(&a, x);
        let labels = [("instance", "i"), ("job", "a")];
        assert!(groups.has_rivals(&b));
        assert_eq!(groups.rival(&b, "x", &labels), Some(a.clone()));
        assert_eq!(groups.rival(&b, "y", &labels), None);
        assert_eq!(groups.rival(&a, "x", &labels), None);
        let labels = [("instance", "i"), ("job", "a"), ("n", "1")];
        assert_eq!(groups.rival(&b, "x", &labels), None);
        assert_eq!(groups.owner(&labels), Some(b));
        assert_eq!(groups.owner(&[("instance", "j"), ("job", "a")]), Some(a));
        assert_eq!(groups.owner(&[("job", "b")]), None);
    }

    #[test]
    fn groups_expire_in_order() {
        let mut groups = Groups::default();
        let (a, b) = (key(&[("job", "a")]), key(&[("job", "b")]));
        for (key, deadline) in [(&a, 20), (&b, 10)] {
            groups.create(key);
            groups.set_deadline(key, Some(deadline));
        }
        assert_eq!(groups.next_to_expire(9), None);
        assert_eq!(groups.next_to_expire(20), Some(b.clone()));
        groups.set_deadline(&b, Some(30));
        assert_eq!(groups.next_to_expire(20), Some(a.clone()));
        groups.expire(&a);
        assert_eq!(groups.next_to_expire(29), None);
        assert!(groups.group(&a).unwrap().is_expired());
        groups.expire(&b);
        assert_eq!(groups.oldest_expired(), Some(a.clone()));
        groups.set_deadline(&a, None);
        assert_eq!(groups.oldest_expired(), Some(b.clone()));
        groups.remove(&b);
        assert_eq!(groups.oldest_expired(), None);
        assert_eq!(groups.next_to_expire(100), None);
    }

    #[test]
    fn a_group_remembers_the_last_pushes() {
        let mut group = Group::default();
        for id in 0..=MAX_IDS as u64 {
            group.remember(id, (id == 1).then(|| "no".to_owned()));
        }
        assert_eq!((group.find_fault(0), group.find_fault(1)), (None, Some(Some("no"))));
        assert_eq!(group.find_fault(MAX_IDS as u64), Some(None));
    }
}
