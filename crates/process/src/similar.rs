//! Finds the name that a user may have meant, for messages about an unknown name.

/// Returns the name that is closest to `name`, if at most `most` bytes must be inserted, removed or
/// replaced. If several names are equally close, the first in alphabetical order wins.
pub fn closest<'n>(
    name: &str,
    names: impl IntoIterator<Item = &'n str>,
    most: usize,
) -> Option<&'n str> {
    let names = names.into_iter().map(|other| (distance(name, other), other));
    names.min().filter(|(distance, _)| *distance <= most).map(|(_, other)| other)
}

/// Returns the edit distance of two names (Levenshtein): the number of bytes to insert, remove or
/// replace.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_found_if_few_bytes_differ() {
        let names = ["window", "windows", "listen"];
        assert_eq!(closest("widnow", names, 2), Some("window"));
        assert_eq!(closest("windowss", names, 2), Some("windows"));
        assert_eq!(closest("keys", names, 1), None);
        assert_eq!(closest("keys", [], 9), None);
        assert_eq!([distance("", "ab"), distance("kitten", "sitting")], [2, 3]);
    }
}
