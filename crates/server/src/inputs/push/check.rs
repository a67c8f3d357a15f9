//! Whether a push contradicts what the groups hold, as Pushgateway's consistency check finds it, in a
//! time that depends on the push alone: one name has one type, no two groups have the same series,
//! and no name collides with the parts of a histogram or summary.

use super::batch::{Batch, Kind};
use super::groups::Groups;
use super::packed;

/// Looks for a contradiction, and describes it. `replaces` says that the push replaces all families
/// of its group.
pub(super) fn check(
    groups: &mut Groups,
    key: &[u8],
    batch: &Batch,
    replaces: bool,
) -> Result<(), String> {
    let there = There { groups, key, batch, replaces };
    for family in batch.families() {
        let (name, kind) = (&*family.name, family.kind);
        let others = Kind::ALL.into_iter().filter(|other| *other != kind);
        if let Some(other) = others.into_iter().find(|other| there.in_other_groups(name, *other)) {
            let (kind, other) = (kind.name(), other.name());
            return Err(format!(
                "collected metric {name:?} is not a {kind}: other groups have it as a {other}"
            ));
        }
        there.check_suffixes(name, kind)?;
    }
    check_series(groups, key, batch)
}

/// What there will be beside a family.
struct There<'a> {
    groups: &'a Groups,
    key: &'a [u8],
    batch: &'a Batch,
    replaces: bool,
}

impl There<'_> {
    fn in_other_groups(&self, name: &str, kind: Kind) -> bool {
        let own = self.groups.group(self.key).and_then(|group| group.family(name));
        let own = u32::from(own.is_some_and(|family| family.kind == kind));
        self.groups.names().groups(name, kind) > own
    }

    fn has(&self, name: &str, kind: Kind) -> bool {
        if let Some(family) = self.batch.family(name) {
            return family.kind == kind;
        }
        match self.replaces {
            true => self.in_other_groups(name, kind),
            false => self.groups.names().groups(name, kind) > 0,
        }
    }

    fn check_suffixes(&self, name: &str, kind: Kind) -> Result<(), String> {
        for (suffix, of) in SUFFIXES {
            if let Some(base) = name.strip_suffix(suffix)
                && let Some(other) = of.iter().find(|kind| self.has(base, **kind))
            {
                return Err(collision(name, other.name(), base));
            }
            if of.contains(&kind) {
                let part = [name, suffix].concat();
                if Kind::ALL.into_iter().any(|kind| self.has(&part, kind)) {
                    return Err(collision(&part, kind.name(), name));
                }
            }
        }
        Ok(())
    }
}

/// What histograms and summaries append to their names.
const SUFFIXES: [(&str, &[Kind]); 3] = [
    ("_count", &[Kind::Summary, Kind::Histogram]),
    ("_sum", &[Kind::Summary, Kind::Histogram]),
    ("_bucket", &[Kind::Histogram]),
];

fn collision(name: &str, kind: &str, other: &str) -> String {
    format!("collected metric named {name:?} collides with the {kind} named {other:?}")
}

/// Looks for another group that has one of the series.
fn check_series(groups: &mut Groups, key: &[u8], batch: &Batch) -> Result<(), String> {
    if !groups.has_rivals(key) {
        return Ok(());
    }
    let mut labels = Vec::new();
    for family in batch.families() {
        for own in family.series.iter() {
            labels.clear();
            labels.extend(packed::unpack(key).chain(packed::unpack(own)));
            labels.sort_unstable_by_key(|label| label.0);
            if let Some(rival) = groups.rival(key, &family.name, &labels) {
                let rival: Vec<_> = packed::unpack(&rival).collect();
                return Err(format!(
                    "collected metric {:?} with the labels {labels:?} was collected before with the \
                     same name and label values: the group {rival:?} has it",
                    &*family.name
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quipu::intake::Limits;

    use super::super::groups::{Family, Key};
    use super::super::parse::Parser;
    use super::super::path::Grouping;
    use super::*;

    fn batch(path: &str, text: &str) -> (Key, Batch) {
        let grouping = Grouping::parse(path).unwrap();
        let key = grouping.key().into();
        let mut batch = Batch::new(grouping, &Limits::default());
        let mut parser = Parser::new("");
        parser.push(text.as_bytes(), &mut batch).unwrap();
        parser.finish(&mut batch).unwrap();
        batch.finish().unwrap();
        (key, batch)
    }

    /// Pushes if that is consistent.
    fn push(groups: &mut Groups, path: &str, text: &str, replaces: bool) -> Result<(), String> {
        let (key, batch) = batch(path, text);
        check(groups, &key, &batch, replaces)?;
        groups.create(&key);
        if replaces {
            groups.retain(&key, |_| false);
        }
        for family in batch.families() {
            let series = family.series.clone();
            let family = Family { name: family.name.clone(), kind: family.kind, time: 1, series };
            groups.put(&key, family);
        }
        Ok(())
    }

    #[test]
    fn a_name_has_one_type() {
        let mut groups = Groups::default();
        push(&mut groups, "job/a", "# TYPE x gauge\nx 1\n", false).unwrap();
        let error = push(&mut groups, "job/b", "# TYPE x counter\nx 1\n", false).unwrap_err();
        assert!(error.contains("\"x\" is not a COUNTER"), "{error}");
        push(&mut groups, "job/b", "# TYPE x gauge\nx 1\n", false).unwrap();
        assert!(push(&mut groups, "job/a", "x 1\n", false).is_err());
        groups.remove(&batch("job/b", "").0);
        // A group that is alone with a name can change its type.
        push(&mut groups, "job/a", "x 1\n", false).unwrap();
    }

    #[test]
    fn names_do_not_collide_with_parts() {
        let histogram = "# TYPE h histogram\nh_count 1\n";
        let summary = "# TYPE h summary\nh_count 1\n";
        for (first, second, collides) in [
            (histogram, "h_bucket 1\n", true),
            (histogram, "h_count 1\n", true),
            (summary, "h_bucket 1\n", false),
            (summary, "h_sum 1\n", true),
            ("h_sum 1\n", histogram, true),
            ("h_bucket 1\n", summary, false),
            ("h_bucket 1\n", histogram, true),
            ("h 1\n", "h_bucket 1\n", false),
        ] {
            let mut groups = Groups::default();
            push(&mut groups, "job/a", first, false).unwrap();
            let other = push(&mut groups, "job/b", second, false);
            assert_eq!(other.is_err(), collides, "{first} {second} {other:?}");
            let mut groups = Groups::default();
            push(&mut groups, "job/a", first, false).unwrap();
            assert_eq!(push(&mut groups, "job/a", second, false).is_err(), collides);
            let mut groups = Groups::default();
            push(&mut groups, "job/a", first, false).unwrap();
            push(&mut groups, "job/a", second, true).unwrap();
        }
    }

    #[test]
    fn a_series_is_in_one_group() {
        let mut groups = Groups::default();
        push(&mut groups, "job/a", "x{instance=\"i\",n=\"1\"} 1\n", false).unwrap();
        push(&mut groups, "job/a/instance/i", "x 1\n", false).unwrap();
        let error = push(&mut groups, "job/a/instance/i", "x{n=\"1\"} 1\n", false).unwrap_err();
        assert!(error.contains("collected before"), "{error}");
        assert!(push(&mut groups, "job/a", "x{instance=\"i\"} 1\n", false).is_err());
        push(&mut groups, "job/a", "x{instance=\"j\"} 1\n", false).unwrap();
    }
}
