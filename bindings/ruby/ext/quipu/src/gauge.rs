//! `Quipu::Gauge`: one value per process, combined according to its aggregation.

use std::ffi::c_int;

use quipu::{Aggregation, Description, ProcessGauge};
use rb_sys::VALUE;

use crate::labels::Key;
use crate::metric::{self, Class, Metric};
use crate::number;
use crate::ruby::{self, DataType, NIL, Raise, method, private_method};

static TYPE: DataType = DataType::new::<Metric<ProcessGauge>>(c"Quipu::Gauge");

impl Class for ProcessGauge {
    const TYPE: &'static DataType = &TYPE;

    /// Adds the setting: the name of the aggregation.
    fn describe(description: Description, settings: &[VALUE]) -> Result<Description, Raise> {
        let Some(name) = settings.first() else { return Ok(description) };
        let aggregation = ruby::text(*name)?.parse::<Aggregation>();
        let refuse = |error| Raise::New(c"InvalidStoreSettingsError", format!("{error}"));
        aggregation.map(|aggregation| description.aggregation(aggregation)).map_err(refuse)
    }
}

pub(crate) fn define() {
    let class = metric::define::<ProcessGauge>(c"Gauge");
    private_method!(class, c"native_set", set, 2);
    private_method!(class, c"native_add", add, 2);
    private_method!(class, c"native_get", get, 1);
    let child = metric::define_child(class);
    method!(child, c"set", set_child, -1);
}

/// `native_set(labels or nil, value)`
unsafe extern "C" fn set(this: VALUE, labels: VALUE, value: VALUE) -> VALUE {
    // SAFETY: receiver and arguments live; the frame holds only plain data.
    unsafe {
        let gauge: &Metric<ProcessGauge> = ruby::value(this);
        let value = number::float(value);
        let one = |bound: &ProcessGauge| bound.set(value);
        gauge.count(this, labels, one, |family, key| family.set(key, value));
    }
    NIL
}

/// `native_add(labels or nil, n)`
unsafe extern "C" fn add(this: VALUE, labels: VALUE, n: VALUE) -> VALUE {
    // SAFETY: as above.
    unsafe {
        let gauge: &Metric<ProcessGauge> = ruby::value(this);
        let n = number::float(n);
        let one = |bound: &ProcessGauge| bound.add(n);
        gauge.count(this, labels, one, |family, key| family.add(key, n));
    }
    NIL
}

/// `native_get(labels or nil)`: the value of this process.
unsafe extern "C" fn get(this: VALUE, labels: VALUE) -> VALUE {
    // SAFETY: as above.
    unsafe {
        let gauge: &Metric<ProcessGauge> = ruby::value(this);
        let mut key = Key::new();
        gauge.labels.read(this, labels, &mut key);
        ruby::float(gauge.family.get(&key).unwrap_or(0.0))
    }
}

/// `child.set(value)`
unsafe extern "C" fn set_child(count: c_int, arguments: *const VALUE, this: VALUE) -> VALUE {
    // SAFETY: as above; Ruby passes `count` arguments.
    unsafe {
        let gauge: &Metric<ProcessGauge> = ruby::value(this);
        match &gauge.bound {
            Some(bound) if count == 1 && rb_sys::rb_keyword_given_p() == 0 => {
                bound.set(number::float(*arguments));
            }
            _ => return metric::general(this, c"set_any", count, arguments),
        }
    }
    NIL
}
