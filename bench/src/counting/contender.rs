//! The interface of a library, in the forms that a program would use.
//!
//! To add a library, you implement the parts that it supports, each in the way that the library's
//! documentation recommends, and omit the rest. The loops around these methods are compiled for
//! each contender, so the calls are direct.

use std::any::Any;
use std::io::{self, Write};

use super::data::{Keys, Kind, Route};

/// A library. Each function creates a new, empty instrument, or returns `None` if the library does
/// not support it.
pub trait Contender: 'static {
    /// The library's name on the command line.
    const KEY: &'static str;

    /// Returns the library's name and version for reports.
    fn subject() -> String;

    /// A counter on a handle.
    fn handle() -> Option<impl Handle> {
        None::<Unsupported>
    }

    /// Counters by kind and route, both enums.
    fn by_enums() -> Option<impl ByEnums> {
        None::<Unsupported>
    }

    /// Families by two enums of ten values each, one of every kind of instrument that the library
    /// supports: counters, gauges, and histograms with the buckets [`super::data::BOUNDS`]. All 100
    /// series were used before.
    fn filled_by_enums() -> Vec<Filled> {
        Vec::new()
    }

    /// Counters by kind and route, where the names of the routes are known in advance.
    fn by_route() -> Option<impl ByRoute + Scrape> {
        None::<Unsupported>
    }

    /// Counters by kind, route and user, where the users are not known in advance.
    fn by_user() -> Option<impl ByUser + Scrape> {
        None::<Unsupported>
    }

    /// Makes families by kind, route and user in one registry, and adds to a series of each key.
    /// Returns these families, or `None` if the library cannot do this.
    fn families(_names: &[&'static str], _keys: &Keys) -> Option<Box<dyn Any>> {
        None
    }

    /// Counters by one string that is not known in advance.
    fn by_text() -> Option<impl ByText + Scrape> {
        None::<Unsupported>
    }

    /// A histogram with the buckets [`super::data::BOUNDS`], on a handle.
    fn histogram() -> Option<impl Observe> {
        None::<Unsupported>
    }

    /// Such histograms by kind and route.
    fn histograms() -> Option<impl ObserveBy> {
        None::<Unsupported>
    }

    /// A histogram with exponential buckets that grow by a factor of at most 1.1 (schema 3), on a
    /// handle.
    fn native_histogram() -> Option<impl Observe> {
        None::<Unsupported>
    }
}

/// Writes a page, and passes it to a reader.
type WritePage = Box<dyn FnMut(&mut dyn FnMut(&[u8])) + Send>;

/// A filled family, and the page that it is written to repeatedly.
pub struct Filled {
    /// The kind of its instruments, in the plural.
    pub instruments: &'static str,
    write: WritePage,
}

impl Filled {
    /// Wraps a family.
    pub fn new<S: Scrape<Page: Send> + 'static>(instruments: &'static str, family: S) -> Filled {
        let mut page = S::Page::default();
        Filled { instruments, write: Box::new(move |read| read(family.scrape(&mut page))) }
    }

    /// Writes all series to the page, and passes the page to `read`.
    pub fn scrape(&mut self, read: &mut dyn FnMut(&[u8])) {
        (self.write)(read);
    }
}

/// A counter on a handle.
pub trait Handle: Send + Sync {
    /// Adds one.
    fn inc(&self);
}

/// Counters by two enums.
pub trait ByEnums: Send + Sync {
    /// Adds one to a series.
    fn inc(&self, kind: Kind, route: Route);
}

/// Counters by an enum and a known string.
pub trait ByRoute: Send + Sync {
    /// Adds one to a series.
    fn inc(&self, kind: Kind, route: &'static str);
}

/// Counters by an enum, a known string and an unknown one.
pub trait ByUser: Send + Sync {
    /// Adds one to a series, which is created if it is new.
    fn inc(&self, kind: Kind, route: &'static str, user: &str);
}

/// Counters by an unknown string.
pub trait ByText: Send + Sync {
    /// Adds one to a series, which is created if it is new.
    fn inc(&self, text: &str);
}

/// A histogram on a handle.
pub trait Observe: Send + Sync {
    /// Records a value.
    fn observe(&self, value: f64);
}

/// Histograms by an enum and a known string.
pub trait ObserveBy: Send + Sync {
    /// Records a value in a series.
    fn observe(&self, kind: Kind, route: &'static str, value: f64);
}

/// Writes all series in the Prometheus text format.
pub trait Scrape: Send + Sync {
    /// State that is reused from one scrape to the next, for example a buffer.
    type Page: Default;

    /// Writes all series to the page and returns its bytes.
    fn scrape<'a>(&self, page: &'a mut Self::Page) -> &'a [u8];

    /// Writes all series directly to a writer, without a page that holds all of them. Returns
    /// `None` if the library cannot do this.
    fn stream(&self, _writer: &mut impl Write) -> Option<io::Result<()>> {
        None
    }
}

/// An instrument that a library does not support.
pub enum Unsupported {}

impl Handle for Unsupported {
    fn inc(&self) {
        match *self {}
    }
}

impl ByEnums for Unsupported {
    fn inc(&self, _: Kind, _: Route) {
        match *self {}
    }
}

impl ByRoute for Unsupported {
    fn inc(&self, _: Kind, _: &'static str) {
        match *self {}
    }
}

impl ByUser for Unsupported {
    fn inc(&self, _: Kind, _: &'static str, _: &str) {
        match *self {}
    }
}

impl ByText for Unsupported {
    fn inc(&self, _: &str) {
        match *self {}
    }
}

impl Observe for Unsupported {
    fn observe(&self, _: f64) {
        match *self {}
    }
}

impl ObserveBy for Unsupported {
    fn observe(&self, _: Kind, _: &'static str, _: f64) {
        match *self {}
    }
}

impl Scrape for Unsupported {
    type Page = ();

    fn scrape<'a>(&self, (): &'a mut ()) -> &'a [u8] {
        match *self {}
    }
}

/// For libraries that write characters instead of bytes.
pub struct Characters<'a, W> {
    writer: &'a mut W,
    error: Option<io::Error>,
}

impl<'a, W: Write> Characters<'a, W> {
    /// Wraps a writer of bytes.
    pub fn new(writer: &'a mut W) -> Self {
        Characters { writer, error: None }
    }

    /// The error of the writer, if it failed.
    pub fn result(self) -> io::Result<()> {
        self.error.map_or(Ok(()), Err)
    }
}

impl<W: Write> std::fmt::Write for Characters<'_, W> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.writer.write_all(text.as_bytes()).map_err(|error| {
            self.error = Some(error);
            std::fmt::Error
        })
    }
}
