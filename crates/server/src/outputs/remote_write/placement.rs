//! Which receiver a series goes to, and in which of its shards, by a hash of the labels.
//!
//! The hash is the same on all machines and in all versions: requests that wait on the disk name
//! their shard, and daemons that send the same series are to choose the same receiver.

use quipu_segment::hash::{fnv1a, fnv1a_of};
use quipu_wire::remote::Label;

/// Where the series of a receiver go.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    /// The number of its shards.
    shards: u8,
    /// The hashes of the names of this receiver and of the others, if they share the series.
    own: u64,
    others: Vec<u64>,
}

impl Default for Placement {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Placement {
    /// A receiver with this many shards, that gets all series.
    pub(crate) fn new(shards: u8) -> Self {
        Self { shards: shards.max(1), own: 0, others: Vec::new() }
    }

    /// A receiver that gets its share of the series, with the names of all.
    pub(crate) fn among<'n>(self, own: &str, all: impl Iterator<Item = &'n str>) -> Self {
        let others = all.filter(|name| *name != own).map(|name| fnv1a(name.as_bytes()));
        Self { own: fnv1a(own.as_bytes()), others: others.collect(), ..self }
    }

    /// The number of shards: at least one.
    pub(crate) fn shards(&self) -> u8 {
        self.shards
    }

    /// The shard of a series with these labels, in order. `None` if another receiver gets it.
    pub(super) fn shard(&self, labels: &[Label<'_>]) -> Option<usize> {
        if self.shards == 1 && self.others.is_empty() {
            return Some(0);
        }
        let hash = hash(labels);
        // Rendezvous hashing: another receiver more takes its share from all of them, and moves no
        // other series.
        let own = mix(hash ^ self.own);
        if self.others.iter().any(|other| mix(hash ^ other) > own) {
            return None;
        }
        let shard = ((mix(hash) >> 32) * u64::from(self.shards)) >> 32;
        usize::try_from(shard).ok()
    }
}

/// The hash of a series. No label has the byte 0xff, which UTF-8 does not use.
fn hash(labels: &[Label<'_>]) -> u64 {
    let parts = labels.iter().flat_map(|(name, value)| [name, value]);
    fnv1a_of(parts.flat_map(|part| part.bytes().chain([0xff])))
}

/// The finalizer of MurmurHash3: all bits of the result depend on all bits of the hash.
fn mix(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shards of many series, with `None` for those of other receivers.
    fn shards(placement: &Placement) -> Vec<Option<usize>> {
        let shard = |n: u32| {
            let value = n.to_string();
            placement.shard(&[("__name__", "hits_total"), ("n", &value)])
        };
        (0..10_000).map(shard).collect()
    }

    #[test]
    fn series_are_spread_over_shards_and_stay_there() {
        for count in [1, 2, 3, 4, 7, 64] {
            let placement = Placement::new(count);
            let all = shards(&placement);
            for shard in 0..usize::from(count) {
                let own = all.iter().filter(|other| **other == Some(shard)).count();
                let fair = all.len() / usize::from(count);
                assert!(fair * 2 / 3 < own && own < fair * 3 / 2, "{own} of {count}");
            }
            assert_eq!(all, shards(&placement.clone()));
        }
        // Files on the disk name shards: this never changes.
        assert_eq!(hash(&[("__name__", "up"), ("job", "a")]), 0xc237_d525_5576_4807);
        let first: Vec<_> = shards(&Placement::new(4)).into_iter().take(8).flatten().collect();
        assert_eq!(first, [0, 0, 0, 2, 2, 3, 0, 0]);
    }

    #[test]
    fn labels_do_not_run_into_each_other() {
        let hashes =
            [[("ab", "c"), ("d", "e")], [("a", "bc"), ("d", "e")], [("ab", "cd"), ("", "e")]];
        let hashes = hashes.map(|labels| hash(&labels));
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
    }

    #[test]
    fn each_series_has_one_receiver_and_few_move() {
        let names = ["http://a/w", "http://b/w", "http://c/w"];
        let of = |own: &str, names: &[&str]| {
            shards(&Placement::new(2).among(own, names.iter().copied()))
        };
        let all = names.map(|name| of(name, &names));
        for at in 0..all[0].len() {
            assert_eq!(all.iter().filter(|of| of[at].is_some()).count(), 1, "{at}");
        }
        for of in &all {
            // Both shards of a receiver have their share.
            for shard in 0..2 {
                let own = of.iter().filter(|other| **other == Some(shard)).count();
                assert!((1300..2000).contains(&own), "{own}");
            }
        }
        // Without the third one, the others keep what they had.
        for (name, before) in names.iter().zip(&all).take(2) {
            let after = of(name, &names[..2]);
            let kept = |(before, after): (&Option<usize>, &Option<usize>)| {
                before.is_none() || before == after
            };
            assert!(before.iter().zip(&after).all(kept));
            assert!(after.iter().flatten().count() > before.iter().flatten().count());
        }
    }
}
