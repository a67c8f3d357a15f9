//! Rebuilds the index of groups from the series in the segment, when the daemon starts.
//!
//! Each group contains a series `push_time_seconds` whose labels are the labels of the group, plus
//! an empty `instance` if there is no other. Any other series belongs to the group with the most
//! labels among all groups whose labels it contains.

use std::collections::HashMap;
use std::time::Duration;

use quipu::intake::{Intake, StoredSeries};
use quipu::snapshot::{self, Value};

use super::builder::{EXPIRY, FAILURE_TIME, Kind, OWN, PUSH_TIME};
use super::groups::{self, Groups, Key, Nanos};
use super::packed::{self, SeriesSet};
use super::update::after;

/// Returns the groups of the series in the segment.
///
/// # Errors
/// Fails if the families of the segment are inconsistent.
pub(super) fn restore(
    intake: &mut Intake,
    expiry: Option<Duration>,
) -> Result<Groups, quipu::Error> {
    let mut stored = StoredGroups::default();
    intake.visit_grouped(|taken| stored.add(taken))?;
    let mut groups = Groups::default();
    let keys = stored.series.remove(PUSH_TIME).map_or(Vec::new(), |(_, keys)| keys);
    for labels in keys {
        let key: Key = labels.into();
        let own = |name| stored.own.get(&(name, key.to_vec())).copied();
        let pushed = own(PUSH_TIME).unwrap_or_default();
        let group = groups.create(&key);
        (group.pushed, group.failed) = (pushed, own(FAILURE_TIME).unwrap_or_default());
        group.ttl = own(EXPIRY).map(Duration::from_nanos);
        let group_failed = group.failed;
        // We assume that pushes were added, because the mode of earlier pushes is unknown.
        group.adds = true;
        if let Some(ttl) = group.ttl.or(expiry).filter(|ttl| !ttl.is_zero()) {
            let last = if pushed == 0 { group_failed } else { pushed };
            groups.set_deadline(&key, Some(after(last, ttl)));
        }
    }
    OWN.iter().for_each(|name| drop(stored.series.remove(*name)));
    for (name, (kind, list)) in stored.series {
        put(&mut groups, &name, kind, list);
    }
    Ok(groups)
}

/// Assigns all series of a name to their groups.
fn put(groups: &mut Groups, name: &str, kind: Kind, list: Vec<Vec<u8>>) {
    let mut of_groups: HashMap<Key, SeriesSet> = HashMap::new();
    for packed in list {
        let labels: Vec<(&str, &str)> = packed::unpack(&packed).collect();
        let key = match groups.owner(&labels) {
            Some(key) => key,
            None => {
                // The group has no time although this time is stored first: the state was full, or
                // the daemon ended during the first push.
                let job = labels.iter().copied().filter(|label| label.0 == "job");
                let key: Key = packed::pack(job).into();
                groups.create(&key);
                key
            }
        };
        let is_own = |name: &str| !packed::unpack(&key).any(|label| label.0 == name);
        let own = packed::pack(labels.iter().copied().filter(|label| is_own(label.0)));
        of_groups.entry(key).or_default().insert(&own);
    }
    for (key, mut series) in of_groups {
        series.shrink();
        let time = groups.group(&key).map_or(0, |group| group.pushed);
        groups.put(
            &key,
            groups::GroupFamily { name: name.into(), kind, time, series: series.into() },
        );
    }
}

/// The series of all groups in the segment.
#[derive(Default)]
struct StoredGroups {
    /// The type and the packed labels of all series, without an empty `instance`, by name.
    series: HashMap<String, (Kind, Vec<Vec<u8>>)>,
    /// The values of the gateway's own series in nanoseconds, by name and packed labels.
    own: HashMap<(&'static str, Vec<u8>), Nanos>,
}

impl StoredGroups {
    fn add(&mut self, taken: &StoredSeries<'_>) {
        let kind = match taken.kind {
            snapshot::Kind::Counter => Kind::Counter,
            snapshot::Kind::Histogram => Kind::Histogram,
            snapshot::Kind::Summary => Kind::Summary,
            snapshot::Kind::Unknown => Kind::Untyped,
            _ => Kind::Gauge,
        };
        let labels = taken.labels.iter().copied().filter(|label| *label != ("instance", ""));
        let packed = packed::pack(labels);
        let own = OWN.into_iter().find(|name| *name == taken.name);
        if let (Some(name), Value::Gauge(seconds)) = (own, taken.value) {
            // The cast saturates at impossible times.
            self.own.insert((name, packed.clone()), (seconds.as_f64() * 1e9) as Nanos);
        }
        match self.series.get_mut(taken.name) {
            Some((_, list)) => list.push(packed),
            None => {
                self.series.insert(taken.name.to_owned(), (kind, vec![packed]));
            }
        }
    }
}
