//! Counts the types of each metric name over all groups. With this index, a push is checked for
//! conflicts with other groups in constant time per family.

use std::collections::HashMap;
use std::sync::Arc;

use quipu_segment::hash::SeededState;

use super::builder::Kind;

/// The number of groups that contain a family, by name and type.
#[derive(Debug, Default)]
pub(super) struct NameTypes(HashMap<Arc<str>, [u32; Kind::ALL.len()], SeededState>);

impl NameTypes {
    /// Adds a family of a group. Returns the name as a string that all groups share.
    pub(super) fn add(&mut self, name: &Arc<str>, kind: Kind) -> Arc<str> {
        let shared = match self.0.get_key_value(name) {
            Some((shared, _)) => shared.clone(),
            None => name.clone(),
        };
        self.0.entry(shared.clone()).or_default()[kind as usize] += 1;
        shared
    }

    /// Removes a family of a group.
    pub(super) fn remove(&mut self, name: &str, kind: Kind) {
        let Some(groups) = self.0.get_mut(name) else { return };
        groups[kind as usize] = groups[kind as usize].saturating_sub(1);
        if groups.iter().all(|groups| *groups == 0) {
            self.0.remove(name);
        }
    }

    /// Returns the number of groups that contain a family with this name and type.
    pub(super) fn groups(&self, name: &str, kind: Kind) -> u32 {
        self.all(name)[kind as usize]
    }

    /// Returns the number of groups that contain a family with this name, for each type.
    pub(super) fn all(&self, name: &str) -> [u32; Kind::ALL.len()] {
        self.0.get(name).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_by_type_and_forgotten() {
        let mut names = NameTypes::default();
        let name: Arc<str> = "x".into();
        let shared = names.add(&name, Kind::Gauge);
        names.add(&"x".into(), Kind::Gauge);
        names.add(&"x".into(), Kind::Counter);
        assert!(Arc::ptr_eq(&shared, &names.add(&"x".into(), Kind::Summary)));
        assert_eq!(names.groups("x", Kind::Gauge), 2);
        assert_eq!(names.groups("x", Kind::Histogram), 0);
        for kind in [Kind::Gauge, Kind::Gauge, Kind::Counter, Kind::Summary] {
            names.remove("x", kind);
        }
        assert!(names.0.is_empty());
        names.remove("x", Kind::Gauge);
    }
}
