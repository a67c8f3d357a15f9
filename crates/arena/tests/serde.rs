//! Values are serialized, and deserialized into arenas and scopes.

#![cfg(feature = "serde")]
#![allow(clippy::unwrap_used)]

use quipu_arena::{
    Arena, ArenaBox, ArenaSeed, ArenaString, ArenaVec, DeserializeIn, Global, LimitedAllocator, Up,
};
use serde_core::de::DeserializeSeed;
use serde_core::de::value::{Error, SeqDeserializer};
use serde_json::{Deserializer, to_string};

#[test]
fn values_come_back_as_they_were() {
    let mut arena = Arena::new();
    let json = r#"[[1,2],[],[3]]"#;
    let nested: ArenaVec<'_, ArenaVec<'_, u8>> =
        ArenaVec::deserialize_in(&mut Deserializer::from_str(json), &arena).unwrap();
    assert_eq!(to_string(&nested).unwrap(), json);

    let json = r#"["a","b\n"]"#;
    let boxed: ArenaBox<'_, [ArenaBox<'_, str>]> =
        ArenaBox::deserialize_in(&mut Deserializer::from_str(json), &arena).unwrap();
    assert_eq!(&*boxed[1], "b\n");
    assert_eq!(to_string(&boxed).unwrap(), json);

    // Values of other types, which own or borrow.
    let json = r#"{"a":[true]}"#;
    let map: ArenaBox<'_, std::collections::BTreeMap<&str, Vec<bool>>> =
        ArenaBox::deserialize_in(&mut Deserializer::from_str(json), &arena).unwrap();
    assert_eq!((map["a"].as_slice(), to_string(&map).unwrap()), (&[true][..], json.to_owned()));
    drop((nested, boxed, map));

    arena.scoped(|scope| {
        let seed = ArenaSeed::<ArenaString<'_, _>, _>::new(&scope);
        let text = seed.deserialize(&mut Deserializer::from_str(r#""quipu""#)).unwrap();
        assert_eq!((text.as_str(), to_string(&text).unwrap()), ("quipu", r#""quipu""#.to_owned()));
    });
}

#[test]
fn wrong_input_and_missing_memory_are_errors() {
    let arena = Arena::new();
    let read = |json: &str| {
        ArenaVec::<'_, ArenaString<'_>>::deserialize_in(&mut Deserializer::from_str(json), &arena)
            .map_err(|error| error.to_string())
    };
    assert!(read("17").unwrap_err().contains("expected a sequence"));
    assert!(read("[17]").unwrap_err().contains("expected a string"));
    assert!(read(r#"["a","#).unwrap_err().contains("EOF"));

    let limited: Arena<Up, _> = Arena::new_in(LimitedAllocator::new(600, Global));
    let json = to_string(&"x".repeat(2000)).unwrap();
    let error = ArenaString::deserialize_in(&mut Deserializer::from_str(&json), &limited)
        .map(|text| text.len())
        .unwrap_err();
    assert!(error.to_string().contains("no memory"), "{error}");
}

/// An iterator of no values that states a length of all memory.
struct Liar;

impl Iterator for Liar {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, Some(usize::MAX))
    }
}

#[test]
fn a_length_in_the_input_reserves_little() {
    let arena = Arena::new();
    let input = SeqDeserializer::<_, Error>::new(Liar);
    let values = ArenaVec::<'_, u32>::deserialize_in(input, &arena).unwrap();
    assert!(values.is_empty());
    assert!(values.capacity() <= 16 * 1024);
}
