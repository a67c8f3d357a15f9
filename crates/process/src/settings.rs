//! The settings of a part of the daemon. A part declares its settings with [`flags!`](crate::flags)
//! in its own folder, and makes its options of them. [`join_flags!`](crate::join_flags) joins the
//! settings of several parts.
//!
//! Values of a settings file may have the forms that people write: `true` for a switch that is on,
//! and a text alone for a list of one.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use clap::ValueEnum;
use serde::de::{Error, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::time::Time;

#[doc(hidden)]
pub use toml;

/// Declares the settings of a part: each is a flag, an environment variable and a key of the
/// settings file. A value after `=` is its default, which the help has to name as well.
///
/// The fields become optional. `or` fills in the settings of another source, and `defaults` has the
/// defaults.
#[macro_export]
macro_rules! flags {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field:ident: $type:ty $(= $default:expr)?,)*
        }
    ) => {
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[derive(::clap::Args, ::serde::Deserialize, ::serde::Serialize)]
        $(#[$meta])*
        #[serde(default, rename_all = "kebab-case")]
        $vis struct $name {
            $($(#[$field_meta])* pub $field: Option<$type>,)*
        }

        impl $name {
            /// Returns these settings, with those of `other` where these are absent.
            pub fn or(self, other: Self) -> Self {
                Self { $($field: self.$field.or(other.$field),)* }
            }

            /// The defaults that the help names, except for those that depend on other settings.
            pub fn defaults() -> Self {
                Self { $($field: $crate::flags!(@default $($default)?),)* }
            }

            /// The names of the settings in a file.
            pub fn names() -> Vec<String> {
                vec![$(stringify!($field).replace('_', "-")),*]
            }

            /// Reads these settings from the TOML of a settings file, and ignores all others.
            ///
            /// # Errors
            /// A string that is not TOML, or an unusable value.
            pub fn from_toml(toml: &str) -> Result<Self, $crate::settings::toml::de::Error> {
                $crate::settings::toml::from_str(toml)
            }

            /// The settings as a settings file.
            ///
            /// # Errors
            /// A path that is not UTF-8.
            pub fn to_toml(&self) -> Result<String, $crate::settings::toml::ser::Error> {
                $crate::settings::toml::to_string(self)
            }
        }
    };
    (@default) => { None };
    (@default $default:expr) => { Some($default) };
}

/// Joins the settings of parts, in the order in which the help shows them. The result has the
/// methods of a part. Settings are keys without tables, because `to_toml` concatenates the parts.
#[macro_export]
macro_rules! join_flags {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$part_meta:meta])* $part:ident: $type:ty,)*
        }
    ) => {
        #[derive(Debug, Clone, Default, PartialEq, Eq, ::clap::Args)]
        $(#[$meta])*
        $vis struct $name {
            $($(#[$part_meta])* #[command(flatten)] pub $part: $type,)*
        }

        // The attributes of a field are its documentation, which expressions ignore, and maybe a
        // `cfg`, which has to apply here as well.
        #[allow(unused_doc_comments)]
        impl $name {
            /// Returns these settings, with those of `other` where these are absent.
            pub fn or(self, other: Self) -> Self {
                Self { $($(#[$part_meta])* $part: self.$part.or(other.$part),)* }
            }

            /// The defaults that the help names, except for those that depend on other settings.
            pub fn defaults() -> Self {
                Self { $($(#[$part_meta])* $part: <$type>::defaults(),)* }
            }

            /// The names of the settings in a file.
            pub fn names() -> Vec<String> {
                [$($(#[$part_meta])* <$type>::names()),*].concat()
            }

            /// Reads these settings from the TOML of a settings file, and ignores all others.
            ///
            /// # Errors
            /// A string that is not TOML, or an unusable value.
            pub fn from_toml(toml: &str) -> Result<Self, $crate::settings::toml::de::Error> {
                Ok(Self { $($(#[$part_meta])* $part: <$type>::from_toml(toml)?,)* })
            }

            /// The settings as a settings file.
            ///
            /// # Errors
            /// A path that is not UTF-8.
            pub fn to_toml(&self) -> Result<String, $crate::settings::toml::ser::Error> {
                Ok([$($(#[$part_meta])* self.$part.to_toml()?),*].concat())
            }
        }
    };
}

/// A setting that has an unusable value, or contradicts another one.
#[derive(Debug, PartialEq, Eq)]
pub struct Unusable {
    /// Its flag, without the dashes.
    pub flag: &'static str,
    /// The fault and the remedy.
    pub reason: String,
}

impl Unusable {
    /// A setting that is unusable for this reason.
    pub fn new(flag: &'static str, reason: impl Into<String>) -> Self {
        Self { flag, reason: reason.into() }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot use --{}: {}", self.flag, self.reason)
    }
}

impl std::error::Error for Unusable {}

/// A setting after the defaults were filled in.
///
/// # Panics
/// If the setting has no default.
pub fn set<T>(value: Option<T>) -> T {
    value.expect("the defaults have a value for it")
}

/// A length of time that has a lower bound.
///
/// # Errors
/// A shorter one.
pub fn at_least(
    flag: &'static str,
    value: Option<Time>,
    least: Duration,
) -> Result<Duration, Unusable> {
    let value = set(value);
    if value.0 < least {
        let least = Time(least);
        return Err(Unusable::new(flag, format!("{value} is too short; give at least {least}")));
    }
    Ok(value.0)
}

/// A number that has bounds.
///
/// # Errors
/// A number out of them.
pub fn in_range(
    flag: &'static str,
    value: Option<usize>,
    least: usize,
    most: usize,
) -> Result<usize, Unusable> {
    let value = set(value);
    if !(least..=most).contains(&value) {
        let reason = format!("{value} is out of range; give {least} to {most}");
        return Err(Unusable::new(flag, reason));
    }
    Ok(value)
}

/// Whether something is done. A settings file may also have `true` or `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// Yes; also written as true.
    #[value(alias = "true")]
    On,
    /// No; also written as false.
    #[value(alias = "false")]
    Off,
}

impl Switch {
    /// Whether it is on.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// Reads a list of texts, or one text as a list of one.
///
/// # Errors
/// Any other value.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
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
