//! Values of a settings file in the forms that people write: `true` for a switch that is on, and a
//! text alone for a list of one.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Switch;

/// Reads a list of texts, or one text as a list of one.
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    deserializer.deserialize_any(List(PhantomData)).map(Some)
}

struct List<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or an array of strings")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        T::deserialize(text.into_deserializer()).map(|one| vec![one])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(value) = values.next_element()? {
            all.push(value);
        }
        Ok(all)
    }
}

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnOrOff)
    }
}

struct OnOrOff;

impl Visitor<'_> for OnOrOff {
    type Value = Switch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"on\" or \"off\"")
    }

    fn visit_bool<E: Error>(self, is_on: bool) -> Result<Switch, E> {
        Ok(if is_on { Switch::On } else { Switch::Off })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Switch, E> {
        match text {
            "on" | "true" => Ok(Switch::On),
            "off" | "false" => Ok(Switch::Off),
            other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
        }
    }
}
