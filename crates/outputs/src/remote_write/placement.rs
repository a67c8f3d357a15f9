//! Assigns each series to a shard of the receiver, by a hash of its labels.
//!
//! This hash must never change, because requests on the disk store their shard.

use quipu_segment::hash::fnv1a_of;
use quipu_wire::remote::Label;

/// Returns the shard, out of `count`, of a series with these sorted labels.
pub(super) fn shard(labels: &[Label<'_>], count: usize) -> usize {
    if count <= 1 {
        return 0;
    }
    (((mix(hash(labels)) >> 32) * count as u64) >> 32) as usize
}

/// Returns the hash of a series. The strings are separated by the byte 0xff, because UTF-8 never
/// contains this byte.
fn hash(labels: &[Label<'_>]) -> u64 {
    let parts = labels.iter().flat_map(|(name, value)| [name, value]);
    fnv1a_of(parts.flat_map(|part| part.bytes().chain([0xff])))
}

/// Mixes the bits with the finalizer of MurmurHash3, so each bit of the result depends on all bits
/// of the hash.
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

    /// Returns the shards of many series.
    fn shards(count: usize) -> Vec<usize> {
        let shard = |n: u32| {
            let value = n.to_string();
            shard(&[("__name__", "hits_total"), ("n", &value)], count)
        };
        (0..10_000).map(shard).collect()
    }

    #[test]
    fn series_are_spread_over_shards_and_stay_there() {
        for count in [1, 2, 3, 4, 7, 64] {
            let all = shards(count);
            for shard in 0..count {
                let own = all.iter().filter(|other| **other == shard).count();
                let fair = all.len() / count;
                assert!(fair * 2 / 3 < own && own < fair * 3 / 2, "{own} of {count}");
            }
        }
        // This must never change, because the files on the disk store shards.
        assert_eq!(hash(&[("__name__", "up"), ("job", "a")]), 0xc237_d525_5576_4807);
        assert_eq!(shards(4)[..8], [0, 0, 0, 2, 2, 3, 0, 0]);
    }

    #[test]
    fn labels_do_not_run_into_each_other() {
        let hashes =
            [[("ab", "c"), ("d", "e")], [("a", "bc"), ("d", "e")], [("ab", "cd"), ("", "e")]];
        let hashes = hashes.map(|labels| hash(&labels));
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
    }
}
