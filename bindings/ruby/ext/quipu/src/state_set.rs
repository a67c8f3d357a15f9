//! `Quipu::StateSet`: named states. Exactly one is on.

use quipu::{Description, StateSet};
use rb_sys::{FIX2LONG, FIXNUM_P, VALUE};

use crate::metric::{self, Class, Metric};
use crate::ruby::{self, DataType, NIL, Raise, guarded, private_method};

type States = StateSet<&'static str>;

static TYPE: DataType = DataType::new::<Metric<States>>(c"Quipu::StateSet");

impl Class for States {
    const TYPE: &'static DataType = &TYPE;

    /// Adds the setting: the names of the states.
    fn describe(description: Description, settings: &[VALUE]) -> Result<Description, Raise> {
        let Some(names) = settings.first() else { return Ok(description) };
        Ok(description.states(ruby::texts(*names)?))
    }
}

pub(crate) fn define() {
    let class = metric::define::<States>(c"StateSet");
    private_method!(class, c"native_set", set, 2);
    metric::define_child(class);
}

/// `native_set(labels or nil, index of the state)`
unsafe extern "C" fn set(this: VALUE, labels: VALUE, index: VALUE) -> VALUE {
    // SAFETY: receiver and arguments live; the frame holds only plain data.
    unsafe {
        let states: &Metric<States> = ruby::value(this);
        let index = match FIXNUM_P(index) {
            true => usize::try_from(FIX2LONG(index)).ok(),
            false => None,
        };
        let Some(index) = index else {
            return guarded(|| Err(Raise::argument("the index of a state is not an Integer")));
        };
        let one = |bound: &States| bound.set_index(index);
        states.count(this, labels, one, |family, key| family.bind(key).set_index(index));
    }
    NIL
}
