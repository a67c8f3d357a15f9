//! The JSON format of saved buckets: an array of `{"Timeint":..,"Count":..}`.
//!
//! The Go package `derlaft/ratecounter/counter` uses this format. `Timeint` is a Unix time divided
//! by the accuracy. The format does not contain the accuracy, so the reader must know it.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::save::LoadReport;

/// A bucket in the file.
#[derive(Debug, Serialize, Deserialize)]
struct Bucket {
    #[serde(rename = "Timeint")]
    tick: u64,
    #[serde(rename = "Count")]
    count: u64,
}

/// A moment, both in a counter's time and in Unix time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// The counter's time.
    pub(crate) now: u64,
    /// The Unix time in nanoseconds.
    pub(crate) unix: u64,
}

/// Writes the buckets that are not empty.
pub(crate) fn write(
    out: &mut dyn Write,
    buckets: &[(u64, u64)],
    accuracy: u64,
    moment: Moment,
) -> Result<(), Error> {
    // The distance between the two clocks, rounded to whole ticks, converts ticks of the counter's
    // time to ticks of Unix time.
    let apart = divide_rounded(i128::from(moment.unix) - i128::from(moment.now), accuracy);
    let buckets: Vec<Bucket> = buckets
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|&(tick, count)| {
            let tick = u64::try_from(i128::from(tick) + apart).unwrap_or(0);
            Bucket { tick, count }
        })
        .collect();
    let text = serde_json::to_vec(&buckets).map_err(|error| Error::from(io::Error::from(error)))?;
    // One write call, because the writer can be a file.
    Ok(out.write_all(&text)?)
}

/// Reads buckets into the counts of the last `ticks` ticks and of the current one, oldest first.
/// Empty input contains no buckets.
pub(crate) fn read(
    input: &mut dyn Read,
    ticks: u64,
    accuracy: u64,
    moment: Moment,
) -> Result<(Vec<u64>, LoadReport), Error> {
    let mut text = Vec::new();
    let length = input.take(MAX_BYTES + 1).read_to_end(&mut text)? as u64;
    if length > MAX_BYTES {
        return Err(Error::malformed(format!(
            "it is longer than {MAX_BYTES} bytes, the most that is read"
        )));
    }
    // The ticks of a window are at most 2^24, see `Shape`.
    let mut counts = vec![0u64; ticks as usize + 1];
    let mut loaded = LoadReport::default();
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok((counts, loaded));
    }
    let buckets: Vec<Bucket> = serde_json::from_slice(&text).map_err(|error| {
        Error::malformed(format!(
            "{error}; an array of {{\"Timeint\":..,\"Count\":..}} is expected"
        ))
    })?;
    let newest = moment.unix / accuracy;
    let overflow = || Error::malformed("its counts add up to 2^64 or more".into());
    for bucket in buckets {
        // The next tick is not the future: a clock can be late by part of a tick, and the file may
        // be new.
        if bucket.tick > newest + 1 {
            let ahead = (bucket.tick - newest).saturating_mul(accuracy);
            if ahead > PLAUSIBLE {
                return Err(implausible("after", bucket.tick, accuracy));
            }
            loaded.future = loaded.future.checked_add(bucket.count).ok_or_else(overflow)?;
            continue;
        }
        let age = newest.saturating_sub(bucket.tick);
        if age > ticks {
            if age.saturating_mul(accuracy) > PLAUSIBLE {
                return Err(implausible("before", bucket.tick, accuracy));
            }
            loaded.expired = loaded.expired.checked_add(bucket.count).ok_or_else(overflow)?;
            continue;
        }
        loaded.counted = loaded.counted.checked_add(bucket.count).ok_or_else(overflow)?;
        // This is at most the total, which did not overflow.
        counts[(ticks - age) as usize] += bucket.count;
    }
    Ok((counts, loaded))
}

/// The maximum number of bytes that are read: far more than real windows take, which contain
/// hundreds of buckets of at most 70 bytes each. (The longest window, of 2^24 buckets, could take
/// more.)
const MAX_BYTES: u64 = 64 << 20;

/// The greatest plausible distance of a bucket from now, in nanoseconds: 10 years. A greater
/// distance means that the file was saved with another accuracy.
const PLAUSIBLE: u64 = 10 * 365 * 86_400 * 1_000_000_000;

fn implausible(side: &str, tick: u64, accuracy: u64) -> Error {
    Error::malformed(format!(
        "its bucket {tick} lies more than 10 years {side} now, at an accuracy of {accuracy} ns; \
         load it with the accuracy that it was saved with"
    ))
}

fn divide_rounded(n: i128, by: u64) -> i128 {
    let by = i128::from(by);
    (n + by / 2).div_euclid(by)
}
