//! The buckets of native histograms in Prometheus' protobuf messages. A message contains runs of
//! buckets, and either the differences between their counts or the counts themselves.

use alloc::vec::Vec;

use super::fields::{each_field, nested, skip_unknown};
use crate::error::Fault;
use crate::protobuf::double;
use crate::reader::{Reader, unzigzag};

/// The buckets of a native histogram on one side of zero.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Runs of buckets: the distance from the end of the previous run, and the number of buckets.
    spans: Vec<(i32, u32)>,
    /// The differences between the counts of buckets.
    deltas: Vec<i64>,
    /// The counts of the buckets, used only by a histogram of floats.
    counts: Vec<f64>,
}

impl Side {
    pub(super) fn clear(&mut self) {
        self.spans.clear();
        self.deltas.clear();
        self.counts.clear();
    }

    /// Returns whether the message contained no run of buckets.
    pub(super) fn has_no_spans(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the number of buckets that were read.
    pub(super) fn len(&self) -> usize {
        self.deltas.len().max(self.counts.len())
    }

    /// Reads one field. The caller translates the tag: 2 stands for the spans, 8 and 10 for the
    /// differences, 17 and 18 for the counts. A side can contain at most `most` buckets and one
    /// span more, because an empty span marks a native histogram.
    pub(super) fn field(
        &mut self,
        tag: u64,
        input: &mut Reader<'_>,
        most: usize,
    ) -> Result<(), Fault> {
        let Side { spans, deltas, counts } = self;
        let mut delta =
            |input: &mut Reader<'_>| push(deltas, unzigzag(input.varint("a difference")?), most);
        match tag {
            0x02 => {
                let (mut offset, mut length) = (0, 0);
                nested(input, |input| {
                    each_field(input, |tag, input| match tag {
                        0x08 => signed(input).map(|read| offset = read),
                        0x10 => {
                            let read = u32::try_from(input.varint("a length")?);
                            length = read.map_err(|_| Fault::malformed("a length in 32 bits"))?;
                            Ok(())
                        }
                        tag => skip_unknown(input, tag, 0b110),
                    })
                })?;
                push(spans, (offset, length), most.saturating_add(1))?;
            }
            0x08 => delta(input)?,
            0x0a => nested(input, |input| {
                while !input.is_empty() {
                    delta(input)?;
                }
                Ok(())
            })?,
            0x11 => push(counts, double(input)?, most)?,
            _ => nested(input, |input| {
                while !input.is_empty() {
                    push(counts, double(input)?, most)?;
                }
                Ok(())
            })?,
        }
        Ok(())
    }

    /// Appends the index and the count of each bucket, sorted by index.
    pub(super) fn expand(&self, out: &mut Vec<(i32, f64)>) -> Result<(), Fault> {
        const COUNTS: Fault = Fault::malformed("spans with one bucket for each count");
        const INDEX: Fault = Fault::malformed("indices of buckets that fit in 32 bits");
        let buckets: u64 = self.spans.iter().map(|span| u64::from(span.1)).sum();
        if buckets != self.len() as u64 || !self.deltas.is_empty() && !self.counts.is_empty() {
            return Err(COUNTS);
        }
        let mut counts = self.counts.iter();
        let mut sum = 0_i64;
        let mut deltas = self.deltas.iter();
        let mut index = 0_i32;
        for (number, (offset, length)) in self.spans.iter().enumerate() {
            if number > 0 && *offset < 0 {
                return Err(Fault::malformed("spans in the order of their buckets"));
            }
            index = index.checked_add(*offset).ok_or(INDEX)?;
            for _ in 0..*length {
                let count = match (deltas.next(), counts.next()) {
                    (Some(delta), _) => {
                        sum = sum.checked_add(*delta).filter(|sum| *sum >= 0).ok_or(
                            Fault::malformed("differences of counts that are not negative"),
                        )?;
                        sum as f64
                    }
                    (None, Some(count)) => *count,
                    (None, None) => return Err(COUNTS),
                };
                out.push((index, count));
                index = index.checked_add(1).ok_or(INDEX)?;
            }
        }
        Ok(())
    }
}

/// Reads a 32-bit zigzag number.
pub(super) fn signed(input: &mut Reader<'_>) -> Result<i32, Fault> {
    let before = *input;
    i32::try_from(unzigzag(input.varint("a number")?)).map_err(|_| {
        *input = before;
        Fault::malformed("a number in 32 bits")
    })
}

/// Appends to a list, which can grow to at most `most` items.
fn push<T>(list: &mut Vec<T>, item: T, most: usize) -> Result<(), Fault> {
    if list.len() >= most {
        return Err(Fault::too_large("a histogram with fewer buckets"));
    }
    list.push(item);
    Ok(())
}
