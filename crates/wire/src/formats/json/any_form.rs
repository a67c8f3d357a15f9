//! Reads a message in any form that JSON allows.

use core::cell::Cell;
use core::fmt;

use quipu_arena::{ArenaVec, Scope};
use serde_core::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::{END, LIST, MEMBER, TYPE};
use crate::base64;
use crate::error::Fault;
use crate::message::{MetricType, MetricUnion};
use crate::reader::Reader;

/// The members of a message, with their names.
pub(super) type Members = &'static [(&'static str, Member)];

/// Returns the expectation for an object without any of these members.
fn names(members: Members) -> &'static str {
    match members {
        [_, (_, Member::Timer)] => "a member of a batch timer: ID or Values",
        [_, _] => "a member of a counter or a gauge: ID or Value",
        _ => "a member of a union: Type, ID, CounterVal, BatchTimerVal or GaugeVal",
    }
}

#[derive(Clone, Copy)]
pub(super) enum Member {
    Type,
    Id,
    Counter,
    Timer,
    Gauge,
}

pub(super) const COUNTER: Members = &[("ID", Member::Id), ("Value", Member::Counter)];
pub(super) const BATCH_TIMER: Members = &[("ID", Member::Id), ("Values", Member::Timer)];
pub(super) const GAUGE: Members = &[("ID", Member::Id), ("Value", Member::Gauge)];
pub(super) const METRIC_UNION: Members = &[
    ("Type", Member::Type),
    ("ID", Member::Id),
    ("CounterVal", Member::Counter),
    ("BatchTimerVal", Member::Timer),
    ("GaugeVal", Member::Gauge),
];

/// Reads a message in any form that JSON allows.
#[cold]
#[inline(never)]
pub(super) fn any_form<'m>(
    input: &mut Reader<'m>,
    scope: &Scope<'m>,
    members: Members,
) -> Result<MetricUnion<'m>, Fault> {
    let reading =
        VisitorState { scope, members, expected: Cell::new(OBJECT), memory: Cell::new(false) };
    let mut json = serde_json::Deserializer::from_slice(input.rest());
    match Object(&reading).deserialize(&mut json) {
        Ok(message) => {
            let end = json.into_iter::<IgnoredAny>().byte_offset();
            input.take(end, OBJECT)?;
            Ok(message)
        }
        Err(error) => {
            let text = input.rest();
            let place = place(&error, text);
            // If the input ends within a skipped number, serde_json reports a wrong byte instead.
            let in_number = error.is_syntax() && place + 1 >= text.len() && ends_in_number(text);
            let ended = error.is_eof() || in_number;
            input.take(if ended { text.len() } else { place }, OBJECT)?;
            Err(if reading.memory.get() {
                Fault::memory()
            } else if ended {
                Fault::incomplete(reading.expected.get())
            } else {
                Fault::malformed(reading.expected.get())
            })
        }
    }
}

/// Returns whether the input ends with an unfinished number.
fn ends_in_number(text: &[u8]) -> bool {
    matches!(text, [.., b'-'] | [.., b'0'..=b'9', b'.' | b'e' | b'E'] | [.., b'e' | b'E', b'+'])
}

/// Returns the offset of an error. The error counts lines, and bytes within a line, from 1.
fn place(error: &serde_json::Error, text: &[u8]) -> usize {
    let mut lines = text.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.by_ref().take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    text.len().min(before + error.column().saturating_sub(1))
}

const OBJECT: &str = "a JSON object";

/// The state that the visitors share.
struct VisitorState<'r, 'm> {
    scope: &'r Scope<'m>,
    members: Members,
    /// The expectation, if there is a fault.
    expected: Cell<&'static str>,
    /// Whether an allocation failed.
    memory: Cell<bool>,
}

impl<'m> VisitorState<'_, 'm> {
    fn error<E: Error>(&self, fault: Fault) -> E {
        self.memory.set(fault == Fault::memory());
        E::custom("")
    }
}

/// Defines a visitor that is its own seed. On a fault, the visitor stores its expectation in
/// [`VisitorState::expected`].
macro_rules! visitor {
    ($name:ident -> $value:ty, $expected:expr, { $($functions:tt)* }) => {
        visitor!($name -> $value, $expected, deserialize_any, { $($functions)* });
    };
    ($name:ident -> $value:ty, $expected:expr, $ask:ident, { $($functions:tt)* }) => {
        struct $name<'r, 'm>(&'r VisitorState<'r, 'm>);

        impl<'m> DeserializeSeed<'m> for $name<'_, 'm> {
            type Value = $value;

            fn deserialize<D: Deserializer<'m>>(self, deserializer: D) -> Result<$value, D::Error> {
                self.0.expected.set($expected);
                deserializer.$ask(self)
            }
        }

        impl<'m> Visitor<'m> for $name<'_, 'm> {
            type Value = $value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($expected)
            }

            $($functions)*
        }
    };
}

visitor!(Object -> MetricUnion<'m>, OBJECT, {
    fn visit_unit<E: Error>(self) -> Result<MetricUnion<'m>, E> {
        Ok(MetricUnion::ZERO)
    }

    fn visit_map<A: MapAccess<'m>>(self, mut map: A) -> Result<MetricUnion<'m>, A::Error> {
        let Object(reading) = self;
        let mut message = Object(reading).visit_unit()?;
        let (mut known, mut unknown) = (false, false);
        while let Some(member) = map.next_key_seed(Name(reading))? {
            known |= member.is_some();
            unknown |= member.is_none();
            match member {
                Some(Member::Type) => {
                    let number = map.next_value_seed(Integer(reading))?;
                    reading.expected.set(TYPE);
                    let number = i8::try_from(number)
                        .map_err(|_| reading.error(Fault::malformed(TYPE)))?;
                    message.metric_type = MetricType(number);
                }
                Some(Member::Id) => message.id = map.next_value_seed(Id(reading))?,
                Some(Member::Counter) => {
                    message.counter = map.next_value_seed(Integer(reading))?;
                }
                Some(Member::Timer) => message.timer = map.next_value_seed(Floats(reading))?,
                Some(Member::Gauge) => {
                    message.gauge = map.next_value_seed(Float(reading))?;
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            reading.expected.set(END);
        }
        if unknown && !known {
            reading.expected.set(names(reading.members));
            return Err(A::Error::custom(""));
        }
        Ok(message)
    }
});

visitor!(Name -> Option<Member>, MEMBER, {
    fn visit_str<E: Error>(self, name: &str) -> Result<Option<Member>, E> {
        self.0.expected.set("the value of a member");
        let member = self.0.members.iter().find(|member| name.eq_ignore_ascii_case(member.0));
        Ok(member.map(|member| member.1))
    }
});

// Does not call `deserialize_any`, because it would return numbers as maps if another crate of the
// program enabled serde_json's `arbitrary_precision`.
visitor!(Integer -> i64, "a whole number of 64 bits", deserialize_option, {
    fn visit_none<E: Error>(self) -> Result<i64, E> {
        Ok(0)
    }

    fn visit_unit<E: Error>(self) -> Result<i64, E> {
        Ok(0)
    }

    fn visit_some<D: Deserializer<'m>>(self, number: D) -> Result<i64, D::Error> {
        number.deserialize_i64(self)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        Ok(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i64, E> {
        i64::try_from(number).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<i64, E> {
        // The only integer that arrives as a float is -0.
        if number.to_bits() == (-0.0f64).to_bits() { Ok(0) } else { Err(E::custom("")) }
    }
});

visitor!(Float -> f64, "a number within the range of doubles", deserialize_option, {
    fn visit_none<E: Error>(self) -> Result<f64, E> {
        Ok(0.0)
    }

    fn visit_unit<E: Error>(self) -> Result<f64, E> {
        Ok(0.0)
    }

    fn visit_some<D: Deserializer<'m>>(self, number: D) -> Result<f64, D::Error> {
        number.deserialize_f64(self)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<f64, E> {
        Ok(number)
    }
});

visitor!(Floats -> &'m [f64], LIST, {
    fn visit_unit<E: Error>(self) -> Result<&'m [f64], E> {
        Ok(&[])
    }

    fn visit_seq<A: SeqAccess<'m>>(self, mut items: A) -> Result<&'m [f64], A::Error> {
        let mut list = ArenaVec::new_in(self.0.scope);
        while let Some(value) = items.next_element_seed(Float(self.0))? {
            self.0.expected.set(LIST);
            list.try_push(value).map_err(|_| self.0.error(Fault::memory()))?;
        }
        Ok(list.into_slice())
    }
});

visitor!(Id -> &'m [u8], base64::EXPECTED, {
    fn visit_unit<E: Error>(self) -> Result<&'m [u8], E> {
        Ok(&[])
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<&'m [u8], E> {
        let text = text.as_bytes();
        let id = if text.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
            let mut letters = ArenaVec::new_in(self.0.scope);
            letters
                .try_extend(text.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')))
                .map_err(|_| Fault::memory())
                .and_then(|()| base64::decode(&letters, self.0.scope))
        } else {
            base64::decode(text, self.0.scope)
        };
        id.map_err(|fault| self.0.error(fault))
    }
});
