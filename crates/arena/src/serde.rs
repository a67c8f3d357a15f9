//! Serialization, and deserialization into an arena: the feature `serde`.
//!
//! A deserialized vector needs a place to live, but serde's `Deserialize` cannot pass one.
//! [`DeserializeIn`] takes the place as a parameter, and [`ArenaSeed`] is the same as a seed.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use serde_core::de::{DeserializeSeed, Error, SeqAccess, Visitor};
use serde_core::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::AllocError;
use crate::boxed::ArenaBox;
use crate::string::ArenaString;
use crate::vec::{ArenaVec, Within};

/// The maximum number of bytes that a vector reserves because of a length in the input.
const MAX_RESERVED: usize = 64 * 1024;

/// A type that can be deserialized into an arena, a scope or a batch.
///
/// [`ArenaVec`], [`ArenaString`] and [`ArenaBox`] implement this trait for values that implement
/// it, and so does each type that implements serde's `Deserialize`.
///
/// ```
/// use quipu_arena::{Arena, ArenaString, ArenaVec, DeserializeIn};
///
/// let arena = Arena::new();
/// let json = r#"["requests","errors"]"#;
/// let mut deserializer = serde_json::Deserializer::from_str(json);
/// let names: ArenaVec<'_, ArenaString<'_>> =
///     ArenaVec::deserialize_in(&mut deserializer, &arena)?;
/// deserializer.end()?;
/// assert_eq!(names[1], "errors");
/// assert_eq!(serde_json::to_string(&names)?, json);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub trait DeserializeIn<'de, H>: Sized {
    /// Deserializes a value whose memory is in `home`.
    ///
    /// # Errors
    ///
    /// If the input is not such a value, or the base allocator is out of memory. Some of the memory
    /// that was allocated before the error can stay allocated until the scope ends or the arena is
    /// reset.
    fn deserialize_in<D: Deserializer<'de>>(deserializer: D, home: H) -> Result<Self, D::Error>;
}

/// A seed that deserializes a [`DeserializeIn`] type. You can pass this to a `Visitor` or a
/// function that takes a seed.
///
/// ```
/// use quipu_arena::{Arena, ArenaSeed, ArenaVec};
/// use serde_core::de::DeserializeSeed;
///
/// let arena = Arena::new();
/// let seed = ArenaSeed::<ArenaVec<'_, u32>, _>::new(&arena);
/// let codes = seed.deserialize(&mut serde_json::Deserializer::from_str("[200, 404]"))?;
/// assert_eq!(codes, [200, 404]);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub struct ArenaSeed<T, H> {
    home: H,
    value: PhantomData<fn() -> T>,
}

impl<T, H> ArenaSeed<T, H> {
    /// Creates a seed with a place where the value can live: `&Arena`, `&Scope` or `&Batch`.
    pub const fn new(home: H) -> ArenaSeed<T, H> {
        ArenaSeed { home, value: PhantomData }
    }
}

impl<T, H> fmt::Debug for ArenaSeed<T, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArenaSeed").finish_non_exhaustive()
    }
}

impl<'de, T: DeserializeIn<'de, H>, H> DeserializeSeed<'de> for ArenaSeed<T, H> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::deserialize_in(deserializer, self.home)
    }
}

impl<'de, T: Deserialize<'de>, H> DeserializeIn<'de, H> for T {
    fn deserialize_in<D: Deserializer<'de>>(deserializer: D, _: H) -> Result<T, D::Error> {
        T::deserialize(deserializer)
    }
}

impl<'de, 'a, T: DeserializeIn<'de, H>, H: Within<'a>> DeserializeIn<'de, H>
    for ArenaVec<'a, T, H>
{
    fn deserialize_in<D: Deserializer<'de>>(deserializer: D, home: H) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(VecVisitor { home, values: PhantomData })
    }
}

impl<'de, 'a, H: Within<'a>> DeserializeIn<'de, H> for ArenaString<'a, H> {
    fn deserialize_in<D: Deserializer<'de>>(deserializer: D, home: H) -> Result<Self, D::Error> {
        deserializer.deserialize_str(StringVisitor { home, string: PhantomData })
    }
}

impl<'de, 'a, T: DeserializeIn<'de, H>, H: Within<'a>> DeserializeIn<'de, H> for ArenaBox<'a, T> {
    fn deserialize_in<D: Deserializer<'de>>(deserializer: D, home: H) -> Result<Self, D::Error> {
        let value = T::deserialize_in(deserializer, home)?;
        let block = home.arena().try_value(value).map_err(no_memory)?;
        // SAFETY: The block is fresh, holds the value, and lives as long as `'a`.
        Ok(unsafe { ArenaBox::from_raw(block) })
    }
}

impl<'de, 'a, T: DeserializeIn<'de, H>, H: Within<'a>> DeserializeIn<'de, H> for ArenaBox<'a, [T]> {
    fn deserialize_in<D: Deserializer<'de>>(deserializer: D, home: H) -> Result<Self, D::Error> {
        ArenaVec::deserialize_in(deserializer, home).map(ArenaVec::into_boxed_slice)
    }
}

impl<'de, 'a, H: Within<'a>> DeserializeIn<'de, H> for ArenaBox<'a, str> {
    fn deserialize_in<D: Deserializer<'de>>(deserializer: D, home: H) -> Result<Self, D::Error> {
        let text = ArenaString::deserialize_in(deserializer, home)?.into_str();
        // SAFETY: The string lives as long as `'a`, and there are no other references to its bytes.
        Ok(unsafe { ArenaBox::from_raw(NonNull::from(text)) })
    }
}

struct VecVisitor<'a, T, H> {
    home: H,
    values: PhantomData<fn() -> (&'a (), T)>,
}

impl<'de, 'a, T: DeserializeIn<'de, H>, H: Within<'a>> Visitor<'de> for VecVisitor<'a, T, H> {
    type Value = ArenaVec<'a, T, H>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        // The input states the length, so we must not trust it.
        let most = MAX_RESERVED / size_of::<T>().max(1);
        let capacity = items.size_hint().unwrap_or(0).min(most);
        let mut values = ArenaVec::try_with_capacity_in(capacity, self.home).map_err(no_memory)?;
        while let Some(value) = items.next_element_seed(ArenaSeed::new(self.home))? {
            values.try_push(value).map_err(no_memory)?;
        }
        Ok(values)
    }
}

struct StringVisitor<'a, H> {
    home: H,
    string: PhantomData<&'a ()>,
}

impl<'de, 'a, H: Within<'a>> Visitor<'de> for StringVisitor<'a, H> {
    type Value = ArenaString<'a, H>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        ArenaString::try_from_str_in(text, self.home).map_err(no_memory)
    }
}

fn no_memory<E: Error>(_: AllocError) -> E {
    E::custom("the base allocator of an arena has no memory for a deserialized value")
}

impl<'a, T: Serialize, H: Within<'a>> Serialize for ArenaVec<'a, T, H> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'a, H: Within<'a>> Serialize for ArenaString<'a, H> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<T: ?Sized + Serialize> Serialize for ArenaBox<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}
