//! The labels and resource attributes that users can add to each request, with their parsers.

use std::fmt;
use std::str::FromStr;

use quipu::exposition::is_legacy_name;
use serde::{Deserialize, Serialize};

/// A label that is added to all series.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExternalLabel {
    /// The name.
    pub name: String,
    /// The value, which is not empty.
    pub value: String,
}

/// An attribute that is added to all resources in OTLP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResourceAttribute {
    /// The key, which is not empty.
    pub key: String,
    /// The value, which is not empty.
    pub value: String,
}

impl FromStr for ExternalLabel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "NAME=VALUE, such as instance=web-1";
        let Some((name, value)) = text.split_once('=') else {
            return Err(format!("it has no value; write {EXAMPLE}"));
        };
        if !is_legacy_name(name) || name.contains(':') || name.starts_with("__") {
            return Err(format!(
                "{name:?} is not the name of a label: it has letters, digits and underscores, and \
                 neither begins with a digit nor with two underscores; write {EXAMPLE}"
            ));
        }
        if matches!(name, "le" | "quantile") {
            return Err(format!("{name:?} has a meaning in metrics; give the label another name"));
        }
        if value.is_empty() {
            return Err(format!(
                "the value is empty, which means that there is none; write {EXAMPLE}"
            ));
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

impl FromStr for ResourceAttribute {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "KEY=VALUE, such as deployment.environment.name=production";
        match text.split_once('=') {
            None => Err(format!("it has no value; write {EXAMPLE}")),
            Some(("", _)) => Err(format!("it has no key; write {EXAMPLE}")),
            Some((_, "")) => Err(format!("the value is empty; write {EXAMPLE}")),
            Some((key, value)) => Ok(Self { key: key.to_owned(), value: value.to_owned() }),
        }
    }
}

macro_rules! texts {
    ($($type:ident),*) => {$(
        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    )*};
}

texts!(ExternalLabel, ResourceAttribute);

impl fmt::Display for ExternalLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl fmt::Display for ResourceAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_attributes_are_checked() {
        assert_eq!("a=b=c".parse::<ExternalLabel>().unwrap().value, "b=c");
        for text in ["a", "=b", "a=", "__a=b", "a:b=c", "1a=b", "a b=c"] {
            let error = text.parse::<ExternalLabel>().unwrap_err();
            assert!(error.contains("NAME=VALUE"), "{text}: {error}");
        }
        let attribute: ResourceAttribute = "a.b=c=d, e".parse().unwrap();
        assert_eq!((&*attribute.key, &*attribute.value), ("a.b", "c=d, e"));
        for text in ["a", "=b", "a="] {
            let error = text.parse::<ResourceAttribute>().unwrap_err();
            assert!(error.contains("KEY=VALUE"), "{text}: {error}");
        }
    }
}
