//! Reads one line: `id:value:value|type|@rate|#tags`.

use quipu_arena::{ArenaVec, Scope};

use super::Dialect;
use crate::error::Fault;
use crate::reader::Reader;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageType {
    Counter,
    Gauge,
    Timer,
}

/// The parts of a line.
pub(super) struct MessageLine<'m> {
    pub(super) name: &'m [u8],
    /// Numbers with colons between them.
    values: &'m [u8],
    /// The input at the position of the values.
    at: Reader<'m>,
    pub(super) metric: MessageType,
    rate: f64,
    pub(super) tags: &'m [u8],
}

/// The beginning of an event.
pub(super) const EVENT: &[u8] = b"_e{";
const VALUE: &str = "a finite number";

impl<'m> MessageLine<'m> {
    /// Reads up to the line feed, or the end of the input.
    pub(super) fn read<D: Dialect>(input: &mut Reader<'m>) -> Result<MessageLine<'m>, Fault> {
        if input.rest().starts_with(EVENT) {
            return Err(Fault::malformed("a metric: there is no message for events"));
        }
        if input.rest().starts_with(b"_sc|") {
            return Err(Fault::malformed("a metric: there is no message for service checks"));
        }
        let name = until(input, b":|\n");
        match input.peek() {
            Some(b':') if !name.is_empty() => drop(input.byte("a colon")?),
            Some(_) => return Err(Fault::malformed("an id, and a colon after it")),
            None => return Err(Fault::incomplete("an id, and a colon after it")),
        }
        let at = *input;
        let values = until(input, b"|\n");
        input.literal(b"|", "a bar after the value")?;
        let metric = metric_type(input)?;
        let mut line = MessageLine { name, values, at, metric, rate: 1.0, tags: &[] };
        while input.skip_literal(b"|") {
            line.read_field::<D>(input)?;
        }
        Ok(line)
    }

    /// Reads a field after the type.
    fn read_field<D: Dialect>(&mut self, input: &mut Reader<'m>) -> Result<(), Fault> {
        let before = *input;
        match until(input, b"|\n") {
            [b'@', rate @ ..] => match number(rate) {
                Some(rate) if 0.0 < rate && rate <= 1.0 => self.rate = rate,
                _ => return Err(cut_or_not_at(input, before, "a sample rate from 0 to 1")),
            },
            [b'#', tags @ ..] => self.tags = tags,
            [_, ..] if D::DOG => {}
            [_, ..] => return Err(not_at(input, before, "a sample rate or tags")),
            [] => return Err(cut_or_not_at(input, before, "a sample rate or tags")),
        }
        Ok(())
    }

    pub(super) fn id(&self, scope: &Scope<'m>) -> Result<&'m [u8], Fault> {
        if self.tags.is_empty() {
            return Ok(self.name);
        }
        let mut id = ArenaVec::new_in(scope);
        for part in [self.name, b"|#", self.tags] {
            id.try_extend_from_slice_copy(part).map_err(|_| Fault::memory())?;
        }
        Ok(id.into_slice())
    }

    /// Returns a counter's value: the sum of all values, divided by the rate.
    pub(super) fn sum(&self, input: &mut Reader<'m>) -> Result<i64, Fault> {
        let mut exact = Some(0i64);
        let mut sum = 0.0;
        for value in self.values.split(|byte| *byte == b':') {
            let Some(float) = number(value) else {
                return Err(not_at(input, self.at, VALUE));
            };
            sum += float;
            exact = exact.zip(integer(value)).and_then(|(a, b)| a.checked_add(b));
        }
        match exact {
            Some(exact) if self.rate == 1.0 => Ok(exact),
            _ => rounded(sum / self.rate, self.rate == 1.0).ok_or_else(|| {
                not_at(input, self.at, "a whole number that fits in 64 bits with its sign")
            }),
        }
    }

    /// Returns a gauge's value. A change is added to the known value.
    pub(super) fn gauge<D: Dialect>(
        &self,
        mut known: Option<f64>,
        input: &mut Reader<'m>,
    ) -> Result<f64, Fault> {
        const ABSOLUTE: &str = "a gauge without a sign: the gauge that it changes is not known";
        for value in self.values.split(|byte| *byte == b':') {
            let Some(float) = number(value) else {
                return Err(not_at(input, self.at, VALUE));
            };
            known = match value.first() {
                Some(b'+' | b'-') if !D::DOG => known.map(|known| known + float),
                _ => Some(float),
            };
            if known.is_none() {
                return Err(not_at(input, self.at, ABSOLUTE));
            }
        }
        known.ok_or_else(|| not_at(input, self.at, ABSOLUTE))
    }

    /// Appends a timer's values.
    pub(super) fn timed(
        &self,
        values: &mut ArenaVec<'m, f64, &Scope<'m>>,
        input: &mut Reader<'m>,
    ) -> Result<(), Fault> {
        for value in self.values.split(|byte| *byte == b':') {
            let Some(float) = number(value) else {
                return Err(not_at(input, self.at, VALUE));
            };
            values.try_push(float).map_err(|_| Fault::memory())?;
        }
        Ok(())
    }
}

fn metric_type(input: &mut Reader<'_>) -> Result<MessageType, Fault> {
    let before = *input;
    match until(input, b"|\n") {
        b"c" => Ok(MessageType::Counter),
        b"g" => Ok(MessageType::Gauge),
        b"ms" | b"h" | b"d" => Ok(MessageType::Timer),
        b"s" => Err(not_at(input, before, "`c`, `g`, `ms`, `h` or `d`; sets have no message")),
        other => {
            let cut = matches!(other, [] | [b'm']);
            let cut = cut && input.is_empty();
            *input = before;
            let fault = if cut { Fault::incomplete } else { Fault::malformed };
            Err(fault("the type of a metric: `c`, `g`, `ms`, `h` or `d`"))
        }
    }
}

/// Takes all bytes before the first of these `stops`, or before the end of the input.
fn until<'m>(input: &mut Reader<'m>, stops: &[u8]) -> &'m [u8] {
    let rest = input.rest();
    let len = rest.iter().position(|byte| stops.contains(byte)).unwrap_or(rest.len());
    input.take(len, "").unwrap_or_default()
}

fn number(text: &[u8]) -> Option<f64> {
    // Rejects `inf` and `nan`, which would parse.
    if !text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) {
        return None;
    }
    let number: f64 = core::str::from_utf8(text).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

fn integer(text: &[u8]) -> Option<i64> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

/// Returns the nearest integer or, if `exactly`, only an equal one.
fn rounded(value: f64, exactly: bool) -> Option<i64> {
    const LIMIT: f64 = (1u64 << 63) as f64;
    if !(-LIMIT..LIMIT).contains(&value) {
        return None;
    }
    let whole = value as i64;
    let fraction = value - whole as f64;
    if exactly && fraction != 0.0 {
        return None;
    }
    // A number with a fraction is far below the limit.
    Some(whole + i64::from(fraction >= 0.5) - i64::from(fraction <= -0.5))
}

#[cold]
pub(super) fn not_at<'m>(
    input: &mut Reader<'m>,
    place: Reader<'m>,
    expected: &'static str,
) -> Fault {
    *input = place;
    Fault::malformed(expected)
}

/// If the input ends here, the field may be incomplete.
#[cold]
fn cut_or_not_at<'m>(input: &mut Reader<'m>, place: Reader<'m>, expected: &'static str) -> Fault {
    let cut = input.is_empty();
    *input = place;
    if cut { Fault::incomplete(expected) } else { Fault::malformed(expected) }
}
