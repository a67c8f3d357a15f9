//! The cases of `rename_all`: how names of variants become label values.

use syn::{Error, LitStr};

/// A way to join words into one identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Lower,
    Upper,
    Pascal,
    Camel,
    Snake,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

/// The names of the cases, which are the same as in serde.
const NAMES: [(&str, Case); 8] = [
    ("lowercase", Case::Lower),
    ("UPPERCASE", Case::Upper),
    ("PascalCase", Case::Pascal),
    ("camelCase", Case::Camel),
    ("snake_case", Case::Snake),
    ("SCREAMING_SNAKE_CASE", Case::ScreamingSnake),
    ("kebab-case", Case::Kebab),
    ("SCREAMING-KEBAB-CASE", Case::ScreamingKebab),
];

impl Case {
    pub(crate) fn parse(name: &LitStr) -> Result<Self, Error> {
        let value = name.value();
        NAMES.iter().find(|(known, _)| *known == value).map(|(_, case)| *case).ok_or_else(|| {
            let known = NAMES.map(|(name, _)| format!("{name:?}")).join(", ");
            Error::new_spanned(name, format!("unknown case {value:?}: use one of {known}"))
        })
    }

    /// Converts a variant's name from PascalCase.
    pub(crate) fn apply(self, variant: &str) -> String {
        let words = words(variant);
        let lower = || words.iter().map(|word| word.to_lowercase());
        let upper = || words.iter().map(|word| word.to_uppercase());
        let pascal = || {
            words.iter().map(|word| {
                let mut chars = word.chars();
                let first = chars.next().into_iter().flat_map(char::to_uppercase);
                first.chain(chars.flat_map(char::to_lowercase)).collect::<String>()
            })
        };
        match self {
            Self::Lower => lower().collect(),
            Self::Upper => upper().collect(),
            Self::Pascal => pascal().collect(),
            Self::Camel => lower().take(1).chain(pascal().skip(1)).collect(),
            Self::Snake => lower().collect::<Vec<_>>().join("_"),
            Self::ScreamingSnake => upper().collect::<Vec<_>>().join("_"),
            Self::Kebab => lower().collect::<Vec<_>>().join("-"),
            Self::ScreamingKebab => upper().collect::<Vec<_>>().join("-"),
        }
    }
}

/// Splits a name into words. A word starts after an underscore, and at an upper-case letter that
/// follows a lower-case letter or a digit, or precedes a lower-case letter (`HttpGet`, `HTTPGet`).
fn words(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.trim_start_matches("r#").chars().collect();
    let mut words = vec![String::new()];
    for (i, &c) in chars.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| chars[i]);
        let after = chars.get(i + 1);
        let begins = c.is_uppercase()
            && before.is_some_and(|before| {
                !before.is_uppercase() || after.is_some_and(|after| after.is_lowercase())
            });
        if (begins || c == '_') && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if c != '_'
            && let Some(word) = words.last_mut()
        {
            word.push(c);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_and_joined() {
        for (name, snake) in [
            ("Get", "get"),
            ("NotFound", "not_found"),
            ("HTTPGet", "http_get"),
            ("Status5xx", "status5xx"),
            ("IPv4", "i_pv4"),
            ("A", "a"),
            ("snake_case", "snake_case"),
        ] {
            assert_eq!(Case::Snake.apply(name), snake);
        }
        let all: Vec<_> = NAMES.iter().map(|(_, case)| case.apply("NotFound")).collect();
        assert_eq!(
            all,
            [
                "notfound",
                "NOTFOUND",
                "NotFound",
                "notFound",
                "not_found",
                "NOT_FOUND",
                "not-found",
                "NOT-FOUND"
            ]
        );
    }
}
