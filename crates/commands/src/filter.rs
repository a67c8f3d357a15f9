//! A filter for series, by words in their name and labels.

/// The words of a filter. The flag is true for a word that must be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    words: Vec<(bool, Vec<u8>)>,
}

impl Filter {
    /// Parses words that are separated by spaces. A word that begins with `-` or `!` must be
    /// missing from the name and the labels. The case of ASCII letters is ignored.
    pub(crate) fn parse(text: &str) -> Self {
        let words = text.split_whitespace().map(|word| match word.strip_prefix(['-', '!']) {
            Some(word) => (true, word.into()),
            None => (false, word.into()),
        });
        Self { words: words.filter(|(_, word): &(_, Vec<u8>)| !word.is_empty()).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub(crate) fn matches(&self, name: &str, labels: &str) -> bool {
        let has = |word| contains(name.as_bytes(), word) || contains(labels.as_bytes(), word);
        self.words.iter().all(|(is_not, word)| has(word) != *is_not)
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    let Some((first, rest)) = word.split_first() else { return true };
    let Some(last) = text.len().checked_sub(word.len()) else { return false };
    (0..=last).any(|at| {
        text[at].eq_ignore_ascii_case(first)
            && text[at + 1..][..rest.len()].eq_ignore_ascii_case(rest)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_must_be_in_the_name_or_the_labels() {
        let matches = |filter, name, labels| Filter::parse(filter).matches(name, labels);
        assert!(matches("", "a", ""));
        assert!(matches("HTTP  code=\"500\"", "http_hits", "path=\"/\",code=\"500\""));
        assert!(!matches("http post", "http_hits", "path=\"/\""));
        assert!(matches("http !post", "http_hits", "path=\"/\""));
        assert!(!matches("!HITS", "http_hits", ""));
        assert!(!matches("http -hits", "http_hits", ""));
        assert!(matches("!", "a", "") && Filter::parse(" ! ").is_empty());
        assert!(!matches("longer_than_all", "a", "b"));
    }
}
