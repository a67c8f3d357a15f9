//! `Quipu::Summary`: the count and sum of observations, and their quantiles.

use std::ffi::c_int;

use quipu::{Description, Summary};
use rb_sys::VALUE;

use crate::metric::{self, Class, Metric};
use crate::number;
use crate::ruby::{self, DataType, NIL, Raise, method, private_method};

static TYPE: DataType = DataType::new::<Metric<Summary>>(c"Quipu::Summary");

impl Class for Summary {
    const TYPE: &'static DataType = &TYPE;

    /// Adds the setting: the quantiles.
    fn describe(description: Description, settings: &[VALUE]) -> Result<Description, Raise> {
        let quantiles = settings.first().map(|list| ruby::floats(*list)).transpose()?;
        Ok(description.quantiles(quantiles.unwrap_or_default()))
    }
}

pub(crate) fn define() {
    let class = metric::define::<Summary>(c"Summary");
    private_method!(class, c"native_observe", observe, 2);
    let child = metric::define_child(class);
    method!(child, c"observe", observe_child, -1);
}

/// `native_observe(labels or nil, value)`
unsafe extern "C" fn observe(this: VALUE, labels: VALUE, value: VALUE) -> VALUE {
    // SAFETY: receiver and arguments live; the frame holds only plain data.
    unsafe {
        let summary: &Metric<Summary> = ruby::value(this);
        let value = number::observed(value);
        let one = |bound: &Summary| bound.observe(value);
        summary.count(this, labels, one, |family, key| family.observe(key, value));
    }
    NIL
}

/// `child.observe(value)`
unsafe extern "C" fn observe_child(count: c_int, arguments: *const VALUE, this: VALUE) -> VALUE {
    // SAFETY: as above; Ruby passes `count` arguments.
    unsafe {
        let summary: &Metric<Summary> = ruby::value(this);
        match &summary.bound {
            Some(bound) if count == 1 && rb_sys::rb_keyword_given_p() == 0 => {
                bound.observe(number::observed(*arguments));
            }
            _ => return metric::general(this, c"observe_any", count, arguments),
        }
    }
    NIL
}
