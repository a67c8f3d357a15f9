//! Selects the sources to watch if there are more than `--segments-count`.
//!
//! Sources that can be shown take precedence over all others. Within a rank, the configured paths
//! take turns, and so do the directories below a path. A directory full of files therefore cannot
//! displace files from another directory that needs no more than its fair share.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;

/// A source that is or could be watched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    /// The configured path that leads to the source.
    pub(super) place: &'a Path,
    /// The directory below this path.
    pub(super) branch: &'a str,
    pub(super) rank: Rank,
}

/// The precedence of a source, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// The source is shown, or will be shown unless reading it fails.
    Shown,
    /// The source is watched but no longer shown, because `--segments-keep` has passed.
    Expired,
    /// The source is not watched, and would expire immediately. This rank is below `Expired`,
    /// because such sources would otherwise replace each other all the time.
    Stale,
    /// The file was removed, and its last values are shown.
    Gone,
    /// No reading of the file has succeeded.
    Unreadable,
}

/// Returns for each candidate whether it is selected. Selects at most `most`, in order within equal
/// candidates.
pub(super) fn choose(candidates: &[Candidate<'_>], most: usize) -> Vec<bool> {
    let mut is_chosen = vec![candidates.len() <= most; candidates.len()];
    if candidates.len() > most {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        order.sort_by_key(|&at| candidates[at].rank);
        take_turns(candidates, &mut order, |one| (one.place, one.branch));
        take_turns(candidates, &mut order, |one| one.place);
        order[..most].iter().for_each(|&at| is_chosen[at] = true);
    }
    is_chosen
}

/// Sorts the candidates by rank, and lets the groups take turns within each rank. The order within
/// a group does not change.
fn take_turns<'a, G: Copy + Eq + Ord + Hash>(
    candidates: &[Candidate<'a>],
    order: &mut [usize],
    group: impl Fn(&Candidate<'a>) -> G,
) {
    let (mut counts, mut turns) = (HashMap::new(), vec![0_usize; candidates.len()]);
    for &at in order.iter() {
        let count = counts.entry(group(&candidates[at])).or_default();
        (turns[at], *count) = (*count, *count + 1);
    }
    order.sort_by_key(|&at| (candidates[at].rank, turns[at], group(&candidates[at])));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates candidates of a rank, `count` for each directory `place/branch`.
    fn candidates<'a>(parts: &[(&'a str, usize, Rank)]) -> Vec<Candidate<'a>> {
        let each = |(path, count, rank): &(&'a str, usize, Rank)| {
            let (place, branch) = path.split_once('/').unwrap();
            std::iter::repeat_n(Candidate { place: Path::new(place), branch, rank: *rank }, *count)
        };
        parts.iter().flat_map(each).collect()
    }

    /// Returns the number of chosen candidates of each part.
    fn chosen(parts: &[(&str, usize, Rank)], most: usize) -> Vec<usize> {
        let candidates = candidates(parts);
        let is_chosen = choose(&candidates, most);
        assert!(
            is_chosen.iter().filter(|is_chosen| **is_chosen).count() == most.min(candidates.len())
        );
        let mut rest = &is_chosen[..];
        let each = |(_, count, _): &(&str, usize, Rank)| {
            let (these, others) = rest.split_at(*count);
            rest = others;
            // The first candidates are chosen.
            assert!(these.is_sorted_by(|a, b| a >= b));
            these.iter().filter(|is_chosen| **is_chosen).count()
        };
        parts.iter().map(each).collect()
    }

    #[test]
    fn all_are_chosen_if_there_is_room() {
        let parts = [("a/", 3, Rank::Unreadable), ("b/", 2, Rank::Shown)];
        assert_eq!(chosen(&parts, 5), [3, 2]);
        assert!(chosen(&[], 5).is_empty());
    }

    #[test]
    fn sources_that_can_be_shown_come_before_others() {
        let parts = [
            ("a/", 3000, Rank::Unreadable),
            ("a/", 7, Rank::Shown),
            ("b/", 90, Rank::Shown),
            ("b/", 10, Rank::Stale),
        ];
        assert_eq!(chosen(&parts, 100), [0, 7, 90, 3]);
        assert_eq!(chosen(&parts, 110), [3, 7, 90, 10]);
    }

    #[test]
    fn each_place_and_each_directory_has_its_share() {
        let parts = [("a/", 3000, Rank::Shown), ("b/", 10, Rank::Shown), ("c/", 700, Rank::Shown)];
        assert_eq!(chosen(&parts, 1000), [495, 10, 495]);
        let parts =
            [("a/x", 3000, Rank::Shown), ("a/y", 10, Rank::Shown), ("b/", 400, Rank::Shown)];
        assert_eq!(chosen(&parts, 1000), [590, 10, 400]);
        assert_eq!(chosen(&parts, 100), [40, 10, 50]);
        // The share counts sources of all ranks.
        let parts = [("a/", 10, Rank::Shown), ("a/", 9, Rank::Gone), ("b/", 9, Rank::Gone)];
        assert_eq!(chosen(&parts, 14), [10, 0, 4]);
    }
}
