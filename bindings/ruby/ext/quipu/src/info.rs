//! `Quipu::Info`: facts about the program, as the labels of one series.

use quipu::{Description, Info};
use rb_sys::VALUE;

use crate::labels::Key;
use crate::metric::{self, Class, Metric};
use crate::ruby::{self, DataType, NIL, Raise, guarded, private_method};

static TYPE: DataType = DataType::new::<Metric<Info>>(c"Quipu::Info");

impl Class for Info {
    const TYPE: &'static DataType = &TYPE;

    fn describe(description: Description, _: &[VALUE]) -> Result<Description, Raise> {
        Ok(description)
    }
}

pub(crate) fn define() {
    let class = metric::define::<Info>(c"Info");
    private_method!(class, c"native_set", set, 2);
}

/// `native_set(labels, [name, value, ...])`: makes this the only series. The second argument
/// contains the same labels as the first, as strings.
unsafe extern "C" fn set(this: VALUE, labels: VALUE, pairs: VALUE) -> VALUE {
    // SAFETY: receiver and arguments live; the frame holds only plain data. Reading the pairs does
    // not call Ruby, so the key stays valid.
    unsafe {
        let info: &Metric<Info> = ruby::value(this);
        let mut key = Key::new();
        info.labels.read(this, labels, &mut key);
        guarded(|| {
            let pairs = ruby::texts(pairs)?;
            let wanted = metric::pairs(&pairs);
            // Make the new series first, because a scrape in between then sees two series, but
            // never none.
            drop(info.family.bind(&key));
            let kept = |found: &[(&str, &str)]| found.iter().all(|pair| wanted.contains(pair));
            info.family.retain(kept).map_err(Raise::store)?;
            Ok(NIL)
        })
    }
}
