//! `Quipu::Histogram`: counts of observations in buckets, and their sum.

use std::ffi::c_int;

use quipu::{Description, Histogram};
use rb_sys::VALUE;

use crate::labels::Key;
use crate::metric::{self, Class, Metric};
use crate::number;
use crate::ruby::{self, DataType, NIL, Raise, guarded, method, private_method};

static TYPE: DataType = DataType::new::<Metric<Histogram>>(c"Quipu::Histogram");

impl Class for Histogram {
    const TYPE: &'static DataType = &TYPE;

    /// Adds the settings: the bounds of the buckets, and whether the histogram keeps exemplars.
    fn describe(description: Description, settings: &[VALUE]) -> Result<Description, Raise> {
        let [bounds, exemplars] = settings else { return Ok(description) };
        let description = description.buckets(ruby::floats(*bounds)?);
        Ok(if *exemplars == ruby::TRUE { description.exemplars() } else { description })
    }
}

pub(crate) fn define() {
    let class = metric::define::<Histogram>(c"Histogram");
    private_method!(class, c"native_observe", observe, 2);
    private_method!(class, c"native_exemplify", exemplify, 3);
    let child = metric::define_child(class);
    method!(child, c"observe", observe_child, -1);
}

/// `native_observe(labels or nil, value)`
unsafe extern "C" fn observe(this: VALUE, labels: VALUE, value: VALUE) -> VALUE {
    // SAFETY: receiver and arguments live; the frame holds only plain data.
    unsafe {
        let histogram: &Metric<Histogram> = ruby::value(this);
        let value = number::observed(value);
        let one = |bound: &Histogram| bound.observe(value);
        histogram.count(this, labels, one, |family, key| family.observe(key, value));
    }
    NIL
}

/// `child.observe(value)`
unsafe extern "C" fn observe_child(count: c_int, arguments: *const VALUE, this: VALUE) -> VALUE {
    // SAFETY: as above; Ruby passes `count` arguments.
    unsafe {
        let histogram: &Metric<Histogram> = ruby::value(this);
        match &histogram.bound {
            Some(bound) if count == 1 && rb_sys::rb_keyword_given_p() == 0 => {
                bound.observe(number::observed(*arguments));
            }
            _ => return metric::general(this, c"observe_any", count, arguments),
        }
    }
    NIL
}

/// `native_exemplify(labels or nil, value, [name, value, ...])`: counts, and keeps an exemplar.
unsafe extern "C" fn exemplify(this: VALUE, labels: VALUE, value: VALUE, exemplar: VALUE) -> VALUE {
    // SAFETY: as above. Reading the exemplar does not call Ruby, so the key stays valid.
    unsafe {
        let histogram: &Metric<Histogram> = ruby::value(this);
        let value = number::observed(value);
        let mut key = Key::new();
        histogram.labels.read(this, labels, &mut key);
        guarded(|| {
            let exemplar = ruby::texts(exemplar)?;
            histogram.family.bind(&key).observe_with_exemplar(value, &metric::pairs(&exemplar));
            Ok(NIL)
        })
    }
}
