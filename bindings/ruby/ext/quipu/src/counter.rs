//! `Quipu::Counter`: a sum that only increases.

use std::ffi::c_int;
use std::sync::OnceLock;

use quipu::{Description, MixedCounter};
use rb_sys::VALUE;

use crate::labels::Key;
use crate::metric::{self, Class, Metric};
use crate::number;
use crate::ruby::{self, DataType, NIL, Raise, guarded, method, private_method};

static TYPE: DataType = DataType::new::<Metric<MixedCounter>>(c"Quipu::Counter");

impl Class for MixedCounter {
    const TYPE: &'static DataType = &TYPE;

    /// Adds the setting: whether the counter keeps exemplars.
    fn describe(description: Description, settings: &[VALUE]) -> Result<Description, Raise> {
        let has_exemplars = settings.first() == Some(&ruby::TRUE);
        Ok(if has_exemplars { description.exemplars() } else { description })
    }
}

pub(crate) fn define() {
    let class = metric::define::<MixedCounter>(c"Counter");
    private_method!(class, c"native_increment", increment, 2);
    private_method!(class, c"native_exemplify", exemplify, 3);
    private_method!(class, c"native_get", get, 1);
    let child = metric::define_child(class);
    method!(child, c"increment", increment_child, -1);
}

/// `native_increment(labels or nil, by)`
unsafe extern "C" fn increment(this: VALUE, labels: VALUE, by: VALUE) -> VALUE {
    // SAFETY: receiver and arguments live; the frame holds only plain data.
    unsafe {
        let counter: &Metric<MixedCounter> = ruby::value(this);
        let by = number::amount(by);
        let one = |bound: &MixedCounter| bound.inc_by(by);
        counter.count(this, labels, one, |family, key| family.inc_by(key, by));
    }
    NIL
}

/// The symbol `:by`, which is never freed.
static BY: OnceLock<VALUE> = OnceLock::new();

fn by() -> VALUE {
    rb_sys::ID2SYM(ruby::id(c"by"))
}

/// `child.increment(by: 1)`. A call without arguments skips all parsing.
unsafe extern "C" fn increment_child(count: c_int, arguments: *const VALUE, this: VALUE) -> VALUE {
    // SAFETY: as above; Ruby passes `count` arguments.
    unsafe {
        let counter: &Metric<MixedCounter> = ruby::value(this);
        match &counter.bound {
            Some(bound) if count == 0 => bound.inc(),
            Some(bound) => match metric::only_keyword(*BY.get_or_init(by), count, arguments) {
                Some(by) => bound.inc_by(number::amount(by)),
                None => return metric::general(this, c"increment_any", count, arguments),
            },
            None => return metric::general(this, c"increment_any", count, arguments),
        }
    }
    NIL
}

/// `native_exemplify(labels or nil, by, [name, value, ...])`: counts, and keeps an exemplar.
unsafe extern "C" fn exemplify(this: VALUE, labels: VALUE, by: VALUE, exemplar: VALUE) -> VALUE {
    // SAFETY: as above. Reading the exemplar does not call Ruby, so the key stays valid.
    unsafe {
        let counter: &Metric<MixedCounter> = ruby::value(this);
        let by = number::amount(by);
        let mut key = Key::new();
        counter.labels.read(this, labels, &mut key);
        guarded(|| {
            let exemplar = ruby::texts(exemplar)?;
            counter.family.bind(&key).inc_with_exemplar(by, &metric::pairs(&exemplar));
            Ok(NIL)
        })
    }
}

/// `native_get(labels or nil)`
unsafe extern "C" fn get(this: VALUE, labels: VALUE) -> VALUE {
    // SAFETY: as above.
    unsafe {
        let counter: &Metric<MixedCounter> = ruby::value(this);
        let mut key = Key::new();
        counter.labels.read(this, labels, &mut key);
        ruby::float(counter.family.get(&key).unwrap_or(0.0))
    }
}
