//! The JSON in which buckets are saved: an array of `{"Timeint":..,"Count":..}`.
//!
//! It is the form of the Go package `derlaft/ratecounter/counter`. `Timeint` is a Unix time
//! divided by the accuracy, which the form does not name: whoever reads it must know it.

use std::io::{Read, Write};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::save::Loaded;

/// A bucket, as the form has it.
#[derive(Debug, Serialize, Deserialize)]
struct Bucket {
    #[serde(rename = "Timeint")]
    tick: u64,
    #[serde(rename = "Count")]
    count: u64,
}

/// Ties a counter's time to Unix time, at one moment.
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
    // Ticks of Unix time and of the counter's are apart by the distance of the two clocks, to the
    // nearest whole tick.
    let apart = divide_rounded(i128::from(moment.unix) - i128::from(moment.now), accuracy);
    let buckets: Vec<Bucket> = buckets
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|&(tick, count)| {
            let tick = u64::try_from(i128::from(tick) + apart).unwrap_or(0);
            Bucket { tick, count }
        })
        .collect();
    let text = serde_json::to_vec(&buckets).map_err(|error| Error::Io(error.into()))?;
    // In one piece: the writer may be a file.
    Ok(out.write_all(&text)?)
}

/// Reads buckets into the counts of the last `ticks` ticks and the one that has begun, oldest
/// first. No input at all holds no buckets.
pub(crate) fn read(
    input: &mut dyn Read,
    ticks: u64,
    accuracy: u64,
    moment: Moment,
) -> Result<(Vec<u64>, Loaded), Error> {
    let mut text = Vec::new();
    let length = input.take(MOST_BYTES + 1).read_to_end(&mut text)? as u64;
    if length > MOST_BYTES {
        return Err(Error::Malformed(format!(
            "it is longer than {MOST_BYTES} bytes, which no window fills"
        )));
    }
    // The ticks of a window are at most 2^24, see `Shape`.
    let mut counts = vec![0u64; ticks as usize + 1];
    let mut loaded = Loaded::default();
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok((counts, loaded));
    }
    let buckets: Vec<Bucket> = serde_json::from_slice(&text).map_err(|error| {
        Error::Malformed(format!(
            "{error}; an array of {{\"Timeint\":..,\"Count\":..}} is expected"
        ))
    })?;
    let newest = moment.unix / accuracy;
    let overflow = || Error::Malformed("its counts add up to 2^64 or more".into());
    for bucket in buckets {
        // A clock may be late by a part of a tick, and the file be from this very moment.
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
        // At most the total, which did not overflow.
        counts[(ticks - age) as usize] += bucket.count;
    }
    Ok((counts, loaded))
}

/// No window of this form is longer than 2^24 buckets, of at most 70 bytes each; real ones have
/// hundreds.
const MOST_BYTES: u64 = 64 << 20;

/// The farthest from now, in nanoseconds, that a bucket is believed to be: 10 years.
const PLAUSIBLE: u64 = 10 * 365 * 86_400 * 1_000_000_000;

fn implausible(side: &str, tick: u64, accuracy: u64) -> Error {
    Error::Malformed(format!(
        "its bucket {tick} lies more than 10 years {side} now, at an accuracy of {accuracy} ns; \
         load it with the accuracy that it was saved with"
    ))
}

fn divide_rounded(n: i128, by: u64) -> i128 {
    let by = i128::from(by);
    (n + by / 2).div_euclid(by)
}
