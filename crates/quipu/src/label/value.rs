//! Implementations of [`LabelValue`] for types of the standard library.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;

use quipu_segment::series::{KeyWriter, StringSet};

use super::{LabelValue, LabelWriter};

impl LabelValue for bool {
    const VALUES: Option<&'static [&'static str]> = Some(&["false", "true"]);

    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        writer.index_within(u32::from(*self), 2);
    }

    fn index(&self) -> Option<u32> {
        Some(u32::from(*self))
    }
}

impl<V: LabelValue + ?Sized> LabelValue for &V {
    const VALUES: Option<&'static [&'static str]> = V::VALUES;

    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        (**self).encode(writer);
    }

    fn index(&self) -> Option<u32> {
        (**self).index()
    }
}

impl LabelValue for str {
    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        writer.text(self);
    }
}

impl LabelValue for char {
    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        writer.text(self.encode_utf8(&mut [0; 4]));
    }
}

macro_rules! addresses {
    ($($type:ty),+) => {$(
        impl LabelValue for $type {
            #[inline]
            fn encode(&self, writer: &mut LabelWriter<'_>) {
                writer.display(self);
            }
        }
    )+};
}

addresses!(IpAddr, Ipv4Addr, Ipv6Addr);

/// A label value that is shown with [`Display`](fmt::Display). Each update formats the string, and
/// allocates memory if it is longer than 64 bytes.
///
/// ```
/// use quipu::label::DisplayValue;
/// use quipu::{CounterFamily, Description, LabelGroup, Registry};
///
/// #[derive(LabelGroup)]
/// struct Peer {
///     socket: DisplayValue<std::net::SocketAddr>,
/// }
///
/// let registry = Registry::new();
/// let calls: CounterFamily<Peer> = registry.register(Description::new("calls", "Calls."))?;
/// calls.inc(&Peer { socket: DisplayValue(([127, 0, 0, 1], 80).into()) });
/// assert_eq!(registry.value("calls_total", &[("socket", "127.0.0.1:80")]), Some(1.0));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DisplayValue<T>(pub T);

impl<T: fmt::Display> LabelValue for DisplayValue<T> {
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        writer.display(&self.0);
    }
}

/// The method of a request, such as `GET`. A client can send any word as a method, so give the
/// family a [limit](crate::Description::max_series), or map unknown methods to one value.
#[cfg(feature = "http")]
impl LabelValue for http::Method {
    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        writer.text(self.as_str());
    }
}

/// The three digits of a status code, such as `404`.
#[cfg(feature = "http")]
impl LabelValue for http::StatusCode {
    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        writer.text(self.as_str());
    }
}

/// An optional value. You can omit the label with `None`, because this is the empty string and
/// Prometheus treats an empty value like a missing label.
impl<V: LabelValue> LabelValue for Option<V> {
    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        match self {
            Some(value) => encode_text(value, writer),
            None => writer.text(""),
        }
    }
}

/// Writes a value as a string, also if its type writes an index.
#[inline]
pub(crate) fn encode_text<V: LabelValue + ?Sized>(value: &V, writer: &mut LabelWriter<'_>) {
    match V::VALUES {
        Some(values) => encode_fixed(value, values, writer),
        None => value.encode(writer),
    }
}

fn encode_fixed<V: LabelValue + ?Sized>(
    value: &V,
    values: &'static [&'static str],
    writer: &mut LabelWriter<'_>,
) {
    // The type can define values but no index. In this case, encode the value to learn the index.
    let index = value.index().or_else(|| {
        let sets = [StringSet::new(values).ok()];
        KeyWriter::index_of(&sets, |key| LabelWriter::wrap(key, |writer| value.encode(writer)))
    });
    match index.and_then(|index| values.get(index as usize)) {
        Some(text) => writer.text(text),
        // An unknown index: counted in the overflow series.
        None => value.encode(writer),
    }
}

macro_rules! texts {
    ($($type:ty),+) => {$(
        impl LabelValue for $type {
            #[inline]
            fn encode(&self, writer: &mut LabelWriter<'_>) {
                writer.text(self);
            }
        }
    )+};
}

texts!(String, Box<str>, Arc<str>, Rc<str>, Cow<'_, str>);

macro_rules! integers {
    ($($type:ty),+) => {$(
        impl LabelValue for $type {
            #[inline]
            fn encode(&self, writer: &mut LabelWriter<'_>) {
                writer.text(itoa::Buffer::new().format(*self));
            }
        }
    )+};
}

integers!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);
