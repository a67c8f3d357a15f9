//! Checks whether a push conflicts with other groups, like Pushgateway's consistency check. A name
//! must have one type everywhere, two groups must not contain the same series, and a name must not
//! equal a part of a histogram or summary (for example, `x_count` next to a histogram `x`). The
//! duration depends only on the size of the push.
//!
//! Like in Pushgateway, the only group with a name can change its type, because a push replaces the
//! family. A push that is added cannot, because the change would lose the current value.

use super::builder::Kind;
use super::content::PushFamilies;
use super::groups::{Group, Groups};
use super::names::NameTypes;
use super::packed;

/// Returns a description of the first conflict. `replaces` means that the push replaces all
/// families of its group, and `adds` that the values are added to the group.
pub(super) fn check(
    groups: &mut Groups,
    key: &[u8],
    families: &PushFamilies,
    replaces: bool,
    adds: bool,
) -> Result<(), String> {
    let context =
        FamilyContext { names: groups.names(), own: groups.group(key), families, replaces };
    for family in families.iter() {
        let (name, kind) = (&*family.name, family.kind);
        if let Some(other) = context.other_kind(name, kind) {
            let (kind, other) = (kind.name(), other.name());
            return Err(format!(
                "collected metric {name:?} is not a {kind}: other groups have it as a {other}"
            ));
        }
        if adds && let Some(own) = context.own_kind(name, kind) {
            let (kind, own) = (kind.name(), own.name());
            return Err(format!(
                "the group has {name:?} as a {own}, and a push that adds a {kind} would lose its \
                 value: choose another name, or replace the family with mode=replace"
            ));
        }
        context.check_suffixes(name, kind)?;
    }
    check_series(groups, key, families)
}

/// The families that would exist after the push.
struct FamilyContext<'a> {
    names: &'a NameTypes,
    /// The group of the push.
    own: Option<&'a Group>,
    families: &'a PushFamilies,
    replaces: bool,
}

impl FamilyContext<'_> {
    /// Returns another type of this name in other groups.
    fn other_kind(&self, name: &str, kind: Kind) -> Option<Kind> {
        let groups = self.names.all(name);
        let mut others = Kind::ALL.into_iter().filter(|other| *other != kind);
        others.find(|other| self.are_others(groups[*other as usize], name, *other))
    }

    /// Returns another type of this name in this group. A family without a type fits all types.
    fn own_kind(&self, name: &str, kind: Kind) -> Option<Kind> {
        let own = self.own?.family(name)?.kind;
        (own != kind && own != Kind::Untyped && kind != Kind::Untyped).then_some(own)
    }

    fn in_other_groups(&self, name: &str, kind: Kind) -> bool {
        self.are_others(self.names.groups(name, kind), name, kind)
    }

    /// Returns whether another group contains the family, by the number of groups that contain it.
    fn are_others(&self, groups: u32, name: &str, kind: Kind) -> bool {
        let is_own = || {
            let own = self.own.and_then(|group| group.family(name));
            own.is_some_and(|family| family.kind == kind)
        };
        groups > 1 || groups == 1 && !is_own()
    }

    fn has(&self, name: &str, kind: Kind) -> bool {
        if let Some(family) = self.families.get(name) {
            return family.kind == kind;
        }
        match self.replaces {
            true => self.in_other_groups(name, kind),
            false => self.names.groups(name, kind) > 0,
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

/// The suffixes that histograms and summaries append to their names.
const SUFFIXES: [(&str, &[Kind]); 3] = [
    ("_count", &[Kind::Summary, Kind::Histogram]),
    ("_sum", &[Kind::Summary, Kind::Histogram]),
    ("_bucket", &[Kind::Histogram]),
];

fn collision(name: &str, kind: &str, other: &str) -> String {
    format!(
        "collected metric named {name:?} collides with the {kind} named {other:?}: rename one of \
         the two, or turn the check off by --push-consistency-check off"
    )
}

/// Returns an error if another group already contains one of the series.
fn check_series(groups: &mut Groups, key: &[u8], families: &PushFamilies) -> Result<(), String> {
    if !groups.has_rivals(key) {
        return Ok(());
    }
    let mut labels = Vec::new();
    for family in families.iter() {
        for own in family.series.iter() {
            labels.clear();
            labels.extend(packed::unpack(key).chain(packed::unpack(own)));
            labels.sort_unstable_by_key(|label| label.0);
            if let Some(rival) = groups.rival(key, &family.name, &labels) {
                let rival: Vec<_> = packed::unpack(&rival).collect();
                return Err(format!(
                    "collected metric {:?} with the labels {labels:?} was collected before with \
                     the same name and label values: the group {rival:?} has it",
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

    use super::super::builder::ContentBuilder;
    use super::super::content::Content;
    use super::super::groups::{GroupFamily, Key};
    use super::super::parse::Parser;
    use super::super::path::Grouping;
    use super::*;
    use quipu_client::media::Media;

    fn read(path: &str, text: &str) -> (Key, Content) {
        let grouping = Grouping::parse(path).unwrap();
        let key = grouping.key().into();
        let mut builder = ContentBuilder::new(grouping, &Limits::default());
        let mut parser = Parser::new(Media::new(""));
        parser.push(text.as_bytes(), &mut builder).unwrap();
        parser.finish(&mut builder).unwrap();
        (key, builder.finish().unwrap())
    }

    /// Pushes, if this is consistent.
    fn push(groups: &mut Groups, path: &str, text: &str, replaces: bool) -> Result<(), String> {
        let (key, Content { families, .. }) = read(path, text);
        check(groups, &key, &families, replaces, false)?;
        groups.create(&key);
        if replaces {
            groups.retain(&key, |_| false);
        }
        for family in families.iter() {
            let series = family.series.clone();
            let family =
                GroupFamily { name: family.name.clone(), kind: family.kind, time: 1, series };
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
        groups.remove(&read("job/b", "").0);
        // The only group with a name can change its type.
        push(&mut groups, "job/a", "x 1\n", false).unwrap();
    }

    #[test]
    fn a_push_that_is_added_keeps_the_type() {
        let mut groups = Groups::default();
        push(&mut groups, "job/a", "# TYPE x counter\nx 1\ny 1\n", false).unwrap();
        let mut add = |text: &str| {
            let (key, Content { families, .. }) = read("job/a", text);
            check(&mut groups, &key, &families, false, true)
        };
        let error = add("# TYPE x gauge\nx 1\n").unwrap_err();
        assert!(error.contains("the group has \"x\" as a COUNTER"), "{error}");
        for text in ["# TYPE x counter\nx 1\n", "x 1\n", "# TYPE y gauge\ny 1\n"] {
            add(text).unwrap();
        }
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
