//! The types that a gob stream defines, and the reader's plan for each.
//!
//! ```text
//! definition  = structure of 0 array, 1 slice, 2 structure, 3 map, 4 to 6 types that write bytes
//! array       = structure of 0 common, 1 type of the items as int, 2 how many as int
//! slice       = structure of 0 common, 1 type of the items as int
//! structure   = structure of 0 common, 1 fields: a count as uint, each a structure of 0 name,
//!               1 type as int
//! map         = structure of 0 common, 1 type of the keys as int, 2 type of the values as int
//! the others  = structure of 0 common
//! common      = structure of 0 name, 1 id of the type as int
//! ```

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quipu_arena::Scope;

use super::{FIELD, bytes, count, double, fields, int, uint};
use crate::error::Fault;
use crate::message::{Kind, MetricUnion};
use crate::reader::Reader;
use crate::values;

/// The state of a reader within a stream.
#[derive(Debug, Default)]
pub struct ReaderState {
    types: Types,
    /// The plan for values of the last value's type.
    plan: Option<Plan>,
}

/// The types by their ids.
#[derive(Debug, Default)]
struct Types {
    known: BTreeMap<i64, Definition>,
    /// Types from a message that is not complete yet. They take precedence over the known types: Go
    /// never defines an id twice, but a stream can consist of several Go streams.
    fresh: BTreeMap<i64, Definition>,
}

#[derive(Debug)]
enum Definition {
    /// A slice or an array, with the type of the items.
    List(i64),
    /// A map, with the types of keys and values.
    Map(i64, i64),
    /// A structure, with the names and types of the fields.
    Structure(Vec<(Name, i64)>),
    /// A type that writes its own bytes.
    Bytes,
}

/// The field names that our messages use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Id,
    Type,
    Value,
    Values,
    CounterVal,
    BatchTimerVal,
    GaugeVal,
    Other,
}

/// The conversion of a type's values to messages of a kind.
#[derive(Debug)]
struct Plan {
    kind: Kind,
    id: i64,
    /// The target of each field.
    slots: Vec<FieldTarget>,
    /// Whether all fields belong to the message and have the expected types.
    usual: bool,
}

/// The target of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldTarget {
    /// The id, from bytes or a string.
    Id,
    /// The union's type, from an int.
    Type,
    /// A counter's value, from an int.
    Counter,
    /// A timer's values, from a list of doubles.
    Timer,
    /// A gauge's value, from a double.
    Gauge,
    /// A number or values of another type. Their value must be representable in the type of the
    /// field.
    Converted(NumberField, NumberType),
    /// An unknown field, with its type.
    Skipped(i64),
}

/// A numeric field of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberField {
    Type,
    Counter,
    Timer,
    Gauge,
}

/// A numeric type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberType {
    Int,
    Uint,
    Double,
}

// The built-in types, which need no definition.
const BOOL: i64 = 1;
const INT: i64 = 2;
const UINT: i64 = 3;
const FLOAT: i64 = 4;
const BYTES: i64 = 5;
const TEXT: i64 = 6;
const COMPLEX: i64 = 7;
const INTERFACE: i64 = 8;

/// The first id of defined types.
const FIRST: i64 = 64;

// No program needs more. These limits bound the memory that a stream can occupy.
const MAX_TYPES: usize = 1000;
const MAX_FIELDS: usize = 1000;
const MAX_LEVELS: usize = 100;

impl ReaderState {
    /// Returns the encoded type of the last value and its fields, if all fields are usual.
    #[inline(always)]
    pub(super) fn usual(&self, kind: Kind) -> Option<(u64, &[FieldTarget])> {
        let plan = self.plan.as_ref()?;
        (plan.usual && plan.kind == kind).then_some(((plan.id as u64) << 1, &plan.slots))
    }

    /// Reads definitions up to the next value, and then the value. On a fault, this state is
    /// unchanged.
    #[inline(never)]
    pub(super) fn read<'m>(
        &mut self,
        kind: Kind,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<MetricUnion<'m>, Fault> {
        let mut stream = Stream { input, starved: false };
        let mut message = Reader::new(&[]);
        match self.next(kind, &mut stream, &mut message, scope) {
            Ok(union) => {
                if !self.types.fresh.is_empty() {
                    self.types.known.extend(core::mem::take(&mut self.types.fresh));
                    self.plan = None;
                }
                Ok(union)
            }
            Err(fault) => {
                self.types.fresh.clear();
                Err(stream.place(fault, &message))
            }
        }
    }

    fn next<'m>(
        &mut self,
        kind: Kind,
        stream: &mut Stream<'_, 'm>,
        message: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<MetricUnion<'m>, Fault> {
        let ReaderState { types, plan } = self;
        stream.next(message)?;
        let mut before = *message;
        let mut id = int(message)?;
        while id < 0 {
            types.define(id, message)?;
            end(message)?;
            stream.next(message)?;
            before = *message;
            id = int(message)?;
        }
        let known = plan.as_ref().is_some_and(|plan| plan.kind == kind && plan.id == id);
        let made;
        let plan = if known && types.fresh.is_empty() {
            plan.as_ref()
        } else {
            made = types.plan(kind, id).inspect_err(|_| *message = before)?;
            if types.fresh.is_empty() { Some(&*plan.insert(made)) } else { Some(&made) }
        };
        let slots = plan.map_or(&[][..], |plan| &plan.slots);
        let union = fields(slots, message, scope, |message, union, slot| match slot {
            FieldTarget::Skipped(id) => types.skip(id, stream, message, MAX_LEVELS),
            FieldTarget::Converted(field, number) => convert(field, number, message, union, scope),
            _ => Err(Fault::malformed(FIELD)),
        })?;
        end(message)?;
        Ok(union)
    }
}

/// The messages of a stream.
struct Stream<'r, 'm> {
    input: &'r mut Reader<'m>,
    /// Whether the input ended within a message.
    starved: bool,
}

impl<'m> Stream<'_, 'm> {
    fn next(&mut self, message: &mut Reader<'m>) -> Result<(), Fault> {
        self.starved = true;
        *message = Reader::new(super::message(self.input)?);
        self.starved = false;
        Ok(())
    }

    /// Moves the input to a fault. More bytes cannot repair a fault within a complete message.
    #[cold]
    fn place(self, fault: Fault, message: &Reader<'m>) -> Fault {
        if self.starved {
            return fault;
        }
        let position = self.input.position() - message.len();
        *self.input = Reader::new(self.input.whole());
        let moved = self.input.take(position, FIELD);
        debug_assert!(moved.is_ok(), "a fault lies within the input");
        match fault.is_incomplete() {
            true => Fault::malformed("a value that ends with its message"),
            false => fault,
        }
    }
}

fn end(message: &Reader<'_>) -> Result<(), Fault> {
    match message.is_empty() {
        true => Ok(()),
        false => Err(Fault::malformed("the end of a message")),
    }
}

impl Types {
    fn get(&self, id: i64) -> Option<&Definition> {
        self.fresh.get(&id).or_else(|| self.known.get(&id))
    }

    /// Reads the rest of a definition after the negated id of its type.
    #[cold]
    fn define(&mut self, negative: i64, message: &mut Reader<'_>) -> Result<(), Fault> {
        let id = negative.checked_neg().filter(|id| *id >= FIRST);
        let id = id.ok_or(Fault::malformed("the definition of a type from 64 on"))?;
        if self.known.len() + self.fresh.len() >= MAX_TYPES && self.get(id).is_none() {
            return Err(Fault::too_large("at most 1,000 types"));
        }
        let mut definition = None;
        structure(message, |number, message| {
            definition = Some(match number {
                0 => Definition::List(ids(message, 2)?[0]),
                1 => Definition::List(ids(message, 1)?[0]),
                2 => Definition::Structure(named(message)?),
                3 => {
                    let [key, value] = ids(message, 2)?;
                    Definition::Map(key, value)
                }
                4..=6 => {
                    ids(message, 0)?;
                    Definition::Bytes
                }
                _ => return Err(Fault::malformed("a kind of definition that exists in gob")),
            });
            Ok(())
        })?;
        let definition = definition.ok_or(Fault::malformed("a definition of a type"))?;
        self.fresh.insert(id, definition);
        Ok(())
    }

    /// Makes the plan for values of a type.
    #[cold]
    fn plan(&self, kind: Kind, id: i64) -> Result<Plan, Fault> {
        let Some(Definition::Structure(named)) = self.get(id) else {
            return Err(Fault::malformed("a value of a structure that was defined"));
        };
        let slots = named
            .iter()
            .map(|(name, id)| self.slot(kind, *name, *id))
            .collect::<Result<Vec<_>, _>>()?;
        let is_ours = |slot: &FieldTarget| !matches!(slot, FieldTarget::Skipped(_));
        if !slots.is_empty() && !slots.iter().any(is_ours) {
            return Err(Fault::malformed("a structure with a field of the message"));
        }
        let is_usual = |slot: &FieldTarget| {
            !matches!(slot, FieldTarget::Skipped(_) | FieldTarget::Converted(..))
        };
        let usual = slots.iter().all(is_usual);
        Ok(Plan { kind, id, slots, usual })
    }

    fn slot(&self, kind: Kind, name: Name, id: i64) -> Result<FieldTarget, Fault> {
        let field = match (kind, name) {
            (_, Name::Id) => {
                return match id {
                    BYTES | TEXT => Ok(FieldTarget::Id),
                    _ => Err(Fault::malformed("an id of the type bytes or string")),
                };
            }
            (Kind::Counter, Name::Value) | (Kind::MetricUnion, Name::CounterVal) => {
                NumberField::Counter
            }
            (Kind::Gauge, Name::Value) | (Kind::MetricUnion, Name::GaugeVal) => NumberField::Gauge,
            (Kind::MetricUnion, Name::Type) => NumberField::Type,
            (Kind::BatchTimer, Name::Values) | (Kind::MetricUnion, Name::BatchTimerVal) => {
                NumberField::Timer
            }
            _ => return Ok(FieldTarget::Skipped(id)),
        };
        let id = match (field, self.get(id)) {
            (NumberField::Timer, Some(Definition::List(item))) => *item,
            (NumberField::Timer, _) => return Err(Fault::malformed("values in a list of numbers")),
            _ => id,
        };
        match (field, id) {
            (NumberField::Type, INT) => Ok(FieldTarget::Type),
            (NumberField::Counter, INT) => Ok(FieldTarget::Counter),
            (NumberField::Timer, FLOAT) => Ok(FieldTarget::Timer),
            (NumberField::Gauge, FLOAT) => Ok(FieldTarget::Gauge),
            (_, INT) => Ok(FieldTarget::Converted(field, NumberType::Int)),
            (_, UINT) => Ok(FieldTarget::Converted(field, NumberType::Uint)),
            (_, FLOAT) => Ok(FieldTarget::Converted(field, NumberType::Double)),
            _ => Err(Fault::malformed("a value of a type of numbers")),
        }
    }

    /// Skips a value of a type, which can nest at most `levels` other types. Each value takes at
    /// least one byte.
    #[cold]
    fn skip<'m>(
        &mut self,
        id: i64,
        stream: &mut Stream<'_, 'm>,
        message: &mut Reader<'m>,
        levels: usize,
    ) -> Result<(), Fault> {
        match id {
            BOOL | INT | UINT | FLOAT => return uint(message).map(drop),
            COMPLEX => return uint(message).and_then(|_| uint(message)).map(drop),
            BYTES | TEXT => return bytes(message).map(drop),
            INTERFACE => return self.skip_interface(stream, message),
            _ => {}
        }
        let Some(levels) = levels.checked_sub(1) else {
            return Err(Fault::too_large("at most 100 types within another"));
        };
        match self.get(id) {
            None => return Err(Fault::malformed("a value of a type that was defined")),
            Some(Definition::Bytes) => return bytes(message).map(drop),
            Some(Definition::List(item)) => {
                let item = *item;
                for _ in 0..uint(message)? {
                    self.skip(item, stream, message, levels)?;
                }
            }
            Some(Definition::Map(key, value)) => {
                let (key, value) = (*key, *value);
                for _ in 0..uint(message)? {
                    self.skip(key, stream, message, levels)?;
                    self.skip(value, stream, message, levels)?;
                }
            }
            Some(Definition::Structure(_)) => {
                let mut index = 0_usize;
                loop {
                    let before = *message;
                    let step = uint(message)?;
                    if step == 0 {
                        return Ok(());
                    }
                    index = index.saturating_add(usize::try_from(step).unwrap_or(usize::MAX));
                    let Some(field) = self.field(id, index - 1) else {
                        *message = before;
                        return Err(Fault::malformed("a field that the type has"));
                    };
                    self.skip(field, stream, message, levels)?;
                }
            }
        }
        Ok(())
    }

    fn field(&self, id: i64, index: usize) -> Option<i64> {
        match self.get(id) {
            Some(Definition::Structure(named)) => named.get(index).map(|(_, id)| *id),
            _ => None,
        }
    }

    /// Skips an interface value: the name of a type (empty if there is no value), the type's id,
    /// and the value after its length. Definitions of the type can precede the id, and each of
    /// these ends its message.
    fn skip_interface<'m>(
        &mut self,
        stream: &mut Stream<'_, 'm>,
        message: &mut Reader<'m>,
    ) -> Result<(), Fault> {
        if bytes(message)?.is_empty() {
            return Ok(());
        }
        loop {
            if message.is_empty() {
                stream.next(message)?;
            }
            let id = int(message)?;
            if id >= 0 {
                return bytes(message).map(drop);
            }
            self.define(id, message)?;
            if !message.is_empty() {
                // Within an interface's value, a length precedes the rest.
                uint(message)?;
            }
        }
    }
}

/// Reads a structure. `read` handles each field.
fn structure<'m>(
    message: &mut Reader<'m>,
    mut field: impl FnMut(u64, &mut Reader<'m>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut next = 0_u64;
    loop {
        let step = uint(message)?;
        if step == 0 {
            return Ok(());
        }
        next = next.saturating_add(step);
        field(next - 1, message)?;
    }
}

/// Reads the common part of a definition, and up to `most` ids or other numbers after it.
fn ids(message: &mut Reader<'_>, most: u64) -> Result<[i64; 2], Fault> {
    let mut ids = [0; 2];
    structure(message, |number, message| {
        match number {
            0 => common(message)?,
            1 | 2 if number <= most => ids[number as usize - 1] = int(message)?,
            _ => return Err(Fault::malformed("a field that the definition has")),
        }
        Ok(())
    })?;
    Ok(ids)
}

/// Skips the name of a type and its id, because they are redundant.
fn common(message: &mut Reader<'_>) -> Result<(), Fault> {
    structure(message, |number, message| match number {
        0 => bytes(message).map(drop),
        1 => int(message).map(drop),
        _ => Err(Fault::malformed("the name or the id of a type")),
    })
}

/// Reads the fields of a structure.
fn named(message: &mut Reader<'_>) -> Result<Vec<(Name, i64)>, Fault> {
    let mut all = Vec::new();
    structure(message, |number, message| {
        match number {
            0 => common(message)?,
            1 => {
                for _ in 0..count(message)? {
                    if all.len() == MAX_FIELDS {
                        return Err(Fault::too_large("at most 1,000 fields"));
                    }
                    all.push(name_and_type(message)?);
                }
            }
            _ => return Err(Fault::malformed("a field that the definition has")),
        }
        Ok(())
    })?;
    Ok(all)
}

fn name_and_type(message: &mut Reader<'_>) -> Result<(Name, i64), Fault> {
    let (mut name, mut id) = (None, 0);
    structure(message, |number, message| {
        match number {
            0 => {
                name = Some(match bytes(message)? {
                    b"ID" => Name::Id,
                    b"Type" => Name::Type,
                    b"Value" => Name::Value,
                    b"Values" => Name::Values,
                    b"CounterVal" => Name::CounterVal,
                    b"BatchTimerVal" => Name::BatchTimerVal,
                    b"GaugeVal" => Name::GaugeVal,
                    _ => Name::Other,
                });
            }
            1 => id = int(message)?,
            _ => return Err(Fault::malformed("the name or the type of a field")),
        }
        Ok(())
    })?;
    Ok((name.ok_or(Fault::malformed("a field with a name"))?, id))
}

#[cold]
fn convert<'m>(
    field: NumberField,
    number: NumberType,
    message: &mut Reader<'m>,
    union: &mut MetricUnion<'m>,
    scope: &Scope<'m>,
) -> Result<(), Fault> {
    let before = *message;
    match field {
        NumberField::Type => {
            let number = integer(number, message)?;
            union.metric_type = message.metric_type(number, before)?;
        }
        NumberField::Counter => union.counter = integer(number, message)?,
        NumberField::Gauge => union.gauge = real(number, message)?,
        NumberField::Timer => {
            let count = count(message)?;
            union.timer = values::fill(count, scope, || real(number, message))?;
        }
    }
    Ok(())
}

fn integer(number: NumberType, message: &mut Reader<'_>) -> Result<i64, Fault> {
    let before = *message;
    let integer = match number {
        NumberType::Int => Some(int(message)?),
        NumberType::Uint => i64::try_from(uint(message)?).ok(),
        NumberType::Double => {
            let value = double(message)?;
            let integer = value as i64;
            // The first double that is too large is 2^63.
            (integer as f64 == value && value < 9_223_372_036_854_775_808.0).then_some(integer)
        }
    };
    integer.ok_or_else(|| {
        *message = before;
        Fault::malformed("an integer of 64 bits")
    })
}

fn real(number: NumberType, message: &mut Reader<'_>) -> Result<f64, Fault> {
    let before = *message;
    let number = match number {
        NumberType::Int => i128::from(int(message)?),
        NumberType::Uint => i128::from(uint(message)?),
        NumberType::Double => return double(message),
    };
    let value = number as f64;
    if value as i128 != number {
        *message = before;
        return Err(Fault::malformed("an integer that a double can represent"));
    }
    Ok(value)
}
