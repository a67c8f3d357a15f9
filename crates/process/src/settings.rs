//! Macros and types for settings. Each part of the daemon declares its settings with
//! [`flags!`](crate::flags) in its own folder, and converts them to its options.
//! [`join_flags!`](crate::join_flags) joins the settings of several parts.
//!
//! In a settings file, some values have convenient forms, such as `true` for a switch, or a single
//! string for a list.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use clap::ValueEnum;
use serde::de::{Error, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::size::Size;
use crate::time::Time;

#[doc(hidden)]
pub use toml;

/// Declares the settings of one part. Each setting is a flag, an environment variable, and a key of
/// the settings file. A value after `=` is the default, which you must also write in the help.
///
/// The fields become optional. `or` adds the settings of another source, and `defaults` returns the
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
            /// Returns these settings, and the settings of `other` where these are missing.
            pub fn or(self, other: Self) -> Self {
                Self { $($field: self.$field.or(other.$field),)* }
            }

            /// Returns the defaults in the help, without defaults that depend on other settings.
            pub fn defaults() -> Self {
                Self { $($field: $crate::flags!(@default $($default)?),)* }
            }

            /// Returns the names of the settings in a file.
            pub fn names() -> Vec<String> {
                vec![$(stringify!($field).replace('_', "-")),*]
            }

            /// Reads these settings from the TOML of a settings file. All other settings are
            /// ignored.
            ///
            /// # Errors
            /// A string that is not TOML, or an unusable value.
            pub fn from_toml(toml: &str) -> Result<Self, $crate::settings::toml::de::Error> {
                $crate::settings::toml::from_str(toml)
            }

            /// Returns the settings as a settings file.
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

/// Joins the settings of parts, in the order of the help. The result offers the same methods as a
/// part. Settings are keys without tables, because `to_toml` concatenates the parts.
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

        // The attributes of a field are its documentation, which expressions ignore, and possibly a
        // `cfg`, which must apply here as well.
        #[allow(unused_doc_comments)]
        impl $name {
            /// Returns these settings, and the settings of `other` where these are missing.
            pub fn or(self, other: Self) -> Self {
                Self { $($(#[$part_meta])* $part: self.$part.or(other.$part),)* }
            }

            /// Returns the defaults in the help, without defaults that depend on other settings.
            pub fn defaults() -> Self {
                Self { $($(#[$part_meta])* $part: <$type>::defaults(),)* }
            }

            /// Returns the names of the settings in a file.
            pub fn names() -> Vec<String> {
                [$($(#[$part_meta])* <$type>::names()),*].concat()
            }

            /// Reads these settings from the TOML of a settings file. All other settings are
            /// ignored.
            ///
            /// # Errors
            /// A string that is not TOML, or an unusable value.
            pub fn from_toml(toml: &str) -> Result<Self, $crate::settings::toml::de::Error> {
                Ok(Self { $($(#[$part_meta])* $part: <$type>::from_toml(toml)?,)* })
            }

            /// Returns the settings as a settings file.
            ///
            /// # Errors
            /// A path that is not UTF-8.
            pub fn to_toml(&self) -> Result<String, $crate::settings::toml::ser::Error> {
                Ok([$($(#[$part_meta])* self.$part.to_toml()?),*].concat())
            }
        }
    };
}

/// The error of a setting that is unusable or conflicts with another one.
#[derive(Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The flag, without dashes.
    pub flag: &'static str,
    /// The problem and the remedy.
    pub reason: String,
}

impl Unusable {
    /// Creates the error for this flag and reason.
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

/// Returns the value of a setting, after the defaults were added.
///
/// # Panics
/// Panics if the setting has no default.
pub fn set<T>(value: Option<T>) -> T {
    value.expect("the defaults have a value for it")
}

/// Returns a duration, after checking its lower bound.
///
/// # Errors
/// Fails if the duration is shorter.
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

/// Returns a number, after checking its bounds.
///
/// # Errors
/// Fails if the number is out of bounds.
pub fn in_range(
    flag: &'static str,
    value: Option<Size<usize>>,
    least: usize,
    most: usize,
) -> Result<usize, Unusable> {
    let Size(value) = set(value);
    if !(least..=most).contains(&value) {
        let reason = format!("{value} is out of range; give {least} to {most}");
        return Err(Unusable::new(flag, reason));
    }
    Ok(value)
}

/// A switch. In a settings file, it can also be `true` or `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// On, also written as true.
    #[value(alias = "true")]
    On,
    /// Off, also written as false.
    #[value(alias = "false")]
    Off,
}

impl Switch {
    /// Returns whether the switch is on.
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}

/// Reads a list of strings, or a single string as a list.
///
/// # Errors
/// Fails for any other value.
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
