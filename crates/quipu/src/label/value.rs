//! Implementations of [`LabelValue`] for types of the standard library.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;

use quipu_segment::series::KeyWriter;

use super::LabelValue;

impl LabelValue for bool {
    const VALUES: Option<&'static [&'static str]> = Some(&["false", "true"]);

    #[inline]
    fn encode(&self, key: &mut KeyWriter<'_>) {
        key.index(u32::from(*self), 2);
    }

    fn index(&self) -> Option<u32> {
        Some(u32::from(*self))
    }
}

impl<V: LabelValue + ?Sized> LabelValue for &V {
    const VALUES: Option<&'static [&'static str]> = V::VALUES;

    #[inline]
    fn encode(&self, key: &mut KeyWriter<'_>) {
        (**self).encode(key);
    }

    fn index(&self) -> Option<u32> {
        (**self).index()
    }
}

impl LabelValue for str {
    #[inline]
    fn encode(&self, key: &mut KeyWriter<'_>) {
        key.text(self);
    }
}

impl LabelValue for char {
    #[inline]
    fn encode(&self, key: &mut KeyWriter<'_>) {
        key.text(self.encode_utf8(&mut [0; 4]));
    }
}

/// An optional value. `None` is the empty text, which Prometheus treats like a missing label.
impl<V: AsRef<str>> LabelValue for Option<V> {
    #[inline]
    fn encode(&self, key: &mut KeyWriter<'_>) {
        key.text(self.as_ref().map_or("", AsRef::as_ref));
    }
}

macro_rules! texts {
    ($($type:ty),+) => {$(
        impl LabelValue for $type {
            #[inline]
            fn encode(&self, key: &mut KeyWriter<'_>) {
                key.text(self);
            }
        }
    )+};
}

texts!(String, Box<str>, Arc<str>, Rc<str>, Cow<'_, str>);

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl LabelValue for $type {
            #[inline]
            fn encode(&self, key: &mut KeyWriter<'_>) {
                key.text(itoa::Buffer::new().format(*self));
            }
        }
    )+};
}

integers!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);
