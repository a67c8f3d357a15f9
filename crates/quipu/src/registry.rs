//! The registry: metrics are registered in it by name, and scrapes read it.

use std::fmt;
#[cfg(unix)]
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

#[cfg(unix)]
use quipu_segment::Options;
use quipu_segment::series::{self, Label, Schema};
use quipu_segment::{ForkSafeCell, Segment};

use crate::collector::{Callback, Collector};
use crate::description::Description;
use crate::error::Error;
use crate::instrument::{Counter, Gauge, Histogram, Instrument, IntGauge};
use crate::label;
use crate::names;
use crate::read::Readers;
use crate::scrape::{Buffers, Scrape};
use crate::snapshot;
use crate::visit::Walk;

/// A set of metrics that are scraped together. Clones share it.
///
/// Its metrics live in a segment: private memory, or memory or a file that several processes share.
///
/// A forked child may use it whatever other threads of its parent were doing at the time.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    segment: Segment,
    /// The registered names.
    names: Names,
    /// The unregistered names, sorted: their families are not shown.
    hidden: ForkSafeCell<Arc<[Arc<str>]>>,
    collectors: ForkSafeCell<Arc<[Arc<dyn Collector>]>>,
    readers: Readers,
    /// Memory of finished scrapes, for later ones. A scrape takes its buffers out while it runs.
    buffers: [AtomicPtr<Buffers>; MOST_BUFFERS],
}

impl Drop for Inner {
    fn drop(&mut self) {
        for buffers in &mut self.buffers {
            let buffers = *buffers.get_mut();
            if !buffers.is_null() {
                // SAFETY: it is from `Box::into_raw`, and no scrape has taken it out.
                drop(unsafe { Box::from_raw(buffers) });
            }
        }
    }
}

/// A view of a registry for one part of a program: with a prefix for names, and constant labels.
#[derive(Debug, Clone)]
pub struct Scope<'r> {
    registry: &'r Registry,
    prefix: String,
    labels: Vec<(String, String)>,
}

/// What can be registered under a description: an instrument, or a family of them.
pub trait Register: Sized {
    /// Registers it in `scope` under `description`.
    ///
    /// # Errors
    /// If the name is taken, a name or a setting is invalid, the settings differ from those of the
    /// existing family, or the segment is full.
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error>;
}

/// A group of metrics. Derive it for a struct of instruments and families.
pub trait Metrics: Sized {
    /// Registers all metrics of the group.
    ///
    /// # Errors
    /// The error of the first metric that cannot be registered.
    fn register(scope: &Scope<'_>) -> Result<Self, Error>;
}

/// The address space that private memory reserves, in bytes; unused pages take no memory.
const PRIVATE_LIMIT: u64 = 1 << 30;
const LEAST_PRIVATE_LIMIT: u64 = 16 << 20;
/// The number of scrapes whose memory is kept.
const MOST_BUFFERS: usize = 4;

impl Registry {
    /// Creates a registry in private memory, of at most 1 GiB.
    ///
    /// # Panics
    /// If the system does not let this process reserve even 16 MiB of address space.
    pub fn new() -> Self {
        let mut limit = PRIVATE_LIMIT;
        loop {
            match Segment::private(limit) {
                Ok(segment) => return Self::on(segment),
                Err(_) if limit > LEAST_PRIVATE_LIMIT => limit /= 2,
                Err(error) => panic!("cannot reserve memory for metrics: {error}"),
            }
        }
    }

    /// Creates a registry on an existing segment: one with another limit, for example, or in a file
    /// that only this process opens.
    pub fn on(segment: Segment) -> Self {
        let inner = Inner {
            segment,
            names: Names::default(),
            hidden: ForkSafeCell::default(),
            collectors: ForkSafeCell::new(Arc::new([])),
            readers: Readers::default(),
            buffers: Default::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Opens a registry in a file, or creates the file. Other processes may open it, too: all count
    /// in the same cells, and each of them can show everything. The file outlives them.
    ///
    /// # Errors
    /// If the file is not a segment, is damaged, or cannot be written.
    #[cfg(unix)]
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::on(Options::new().shared().open_or_create(path)?))
    }

    /// The registry of the whole program, created on first use.
    pub fn global() -> &'static Self {
        static GLOBAL: AtomicPtr<Registry> = AtomicPtr::new(std::ptr::null_mut());
        let mut global = GLOBAL.load(Ordering::Acquire);
        if global.is_null() {
            // No lock: a child forked while another thread is here would wait for it forever. If
            // two threads get here at once, one of them drops the registry that it created.
            let made = Box::into_raw(Box::new(Self::new()));
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            global = match GLOBAL.compare_exchange(global, made, success, failure) {
                Ok(_) => made,
                Err(first) => {
                    // SAFETY: it is from above, and no other thread has seen it.
                    drop(unsafe { Box::from_raw(made) });
                    first
                }
            };
        }
        // SAFETY: it is from `Box::into_raw`, and is never dropped or changed.
        unsafe { &*global }
    }

    /// The segment that holds the metrics.
    pub fn segment(&self) -> &Segment {
        &self.inner.segment
    }

    /// Registers an instrument or a family.
    ///
    /// # Errors
    /// Those of [`Register::register`].
    pub fn register<R: Register>(&self, description: Description) -> Result<R, Error> {
        R::register(&self.scope(), description)
    }

    /// Registers a group of metrics.
    ///
    /// # Errors
    /// Those of [`Metrics::register`].
    pub fn metrics<M: Metrics>(&self) -> Result<M, Error> {
        M::register(&self.scope())
    }

    /// Registers a counter.
    ///
    /// # Errors
    /// Those of [`Register::register`].
    pub fn counter(&self, name: &str, help: &str) -> Result<Counter, Error> {
        self.register(Description::new(name, help))
    }

    /// Registers a gauge.
    ///
    /// # Errors
    /// Those of [`Register::register`].
    pub fn gauge(&self, name: &str, help: &str) -> Result<Gauge, Error> {
        self.register(Description::new(name, help))
    }

    /// Registers an integer gauge.
    ///
    /// # Errors
    /// Those of [`Register::register`].
    pub fn int_gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.register(Description::new(name, help))
    }

    /// Registers a histogram with the default buckets.
    ///
    /// # Errors
    /// Those of [`Register::register`].
    pub fn histogram(&self, name: &str, help: &str) -> Result<Histogram, Error> {
        self.register(Description::new(name, help))
    }

    /// A scope without prefix and labels, to derive others from.
    pub fn scope(&self) -> Scope<'_> {
        Scope { registry: self, prefix: String::new(), labels: Vec::new() }
    }

    /// A scope whose names begin with `prefix` and an underscore.
    pub fn prefix(&self, prefix: &str) -> Scope<'_> {
        self.scope().prefix(prefix)
    }

    /// Adds a collector. Every scrape calls it, after the registry's own families.
    ///
    /// # Errors
    /// If the name of one of its families is taken.
    pub fn collect(&self, collector: impl Collector + 'static) -> Result<(), Error> {
        for name in collector.names() {
            self.claim(&name)?;
        }
        let collector: Arc<dyn Collector> = Arc::new(collector);
        self.inner.collectors.replace(|collectors| {
            (Some(collectors.iter().cloned().chain([collector]).collect()), ())
        });
        Ok(())
    }

    /// Removes a metric from the registry of this process: it is no longer shown, and its name may
    /// be registered again. Returns false if no metric of that name is registered.
    ///
    /// The family and its counts stay in the segment, where other processes may use them.
    /// Registering the name again continues with these counts and requires a description that does
    /// not contradict the first. A collector is removed with all of its names.
    pub fn unregister(&self, name: &str) -> bool {
        let inner = &*self.inner;
        let mut names = vec![name.to_owned()];
        inner.collectors.replace(|collectors| {
            let has_name = |collector: &&Arc<dyn Collector>| {
                collector.names().iter().any(|other| other == name)
            };
            let Some(gone) = collectors.iter().find(has_name) else { return (None, ()) };
            names = gone.names();
            let is_other = |other: &&Arc<dyn Collector>| !Arc::ptr_eq(other, gone);
            (Some(collectors.iter().filter(is_other).cloned().collect()), ())
        });
        // Hide it before its name is free, so that a later registration shows it again.
        if inner.names.has(name) {
            inner.hidden.replace(|hidden| match find(hidden, name) {
                Ok(_) => (None, ()),
                Err(at) => (Some(with(hidden, at, name).into()), ()),
            });
        }
        let was_there = names.iter().map(|name| inner.names.release(name));
        was_there.fold(false, |any, one| any | one)
    }

    /// Resets all counts to zero, for all processes that count in the segment, and removes the
    /// series with dynamic labels to which no handle is bound. Concurrent updates may be lost.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent, or its locks cannot be taken.
    pub fn reset(&self) -> Result<(), Error> {
        for reader in self.inner.readers.of(&self.inner.segment)?.iter() {
            reader.reset()?;
        }
        for collector in self.collectors().iter() {
            collector.reset();
        }
        Ok(())
    }

    /// Starts a scrape. It takes no lock that counting waits for, and does not allocate after an
    /// earlier scrape has finished.
    pub fn scrape(&self) -> Scrape {
        let mut kept = self.inner.buffers.iter().map(|place| {
            // Acquire: pairs with the release in `give_back`, to see the buffers as they were left.
            place.swap(std::ptr::null_mut(), Ordering::Acquire)
        });
        let buffers = kept.find(|buffers| !buffers.is_null()).map(|buffers| {
            // SAFETY: it is from `Box::into_raw`, and the swap makes this thread its only owner.
            unsafe { Box::from_raw(buffers) }
        });
        Scrape::new(self.clone(), buffers.unwrap_or_default())
    }

    /// Passes all families and series to a sink, which may be an encoder, a sender, or a test.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn visit(&self, sink: &mut impl snapshot::Sink) -> Result<(), Error> {
        let mut walk = Walk::default();
        walk.begin(self)?;
        walk.step(sink, |_| false);
        Ok(())
    }

    /// Passes one family of the segment to a sink; returns false if there is none of that name.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn visit_family(&self, name: &str, sink: &mut impl snapshot::Sink) -> Result<bool, Error> {
        let mut walk = Walk::default();
        walk.begin(self)?;
        let is_there = walk.narrow(name);
        if is_there {
            walk.step(sink, |_| false);
        }
        Ok(is_there)
    }

    /// Passes the families of the segment whose names `is_wanted` accepts to a sink, and then those
    /// of `more`.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn visit_with(
        &self,
        is_wanted: impl Fn(&str) -> bool,
        more: impl IntoIterator<Item = snapshot::Source>,
        sink: &mut impl snapshot::Sink,
    ) -> Result<(), Error> {
        let own = self.inner.readers.of(&self.inner.segment)?;
        let own = own.iter().filter(|reader| is_wanted(reader.name())).cloned();
        Walk::over(own.chain(more.into_iter().map(snapshot::Source::into_reader)))
            .step(sink, |_| false);
        Ok(())
    }

    /// Like [`Registry::visit`], but only families in the segment, unregistered ones included: no
    /// collectors and no callbacks.
    ///
    /// # Errors
    /// As for [`Registry::visit`].
    pub fn visit_segment(&self, sink: &mut impl snapshot::Sink) -> Result<(), Error> {
        let mut walk = Walk::default();
        walk.begin_segment(self)?;
        walk.step(sink, |_| false);
        Ok(())
    }

    /// Returns all metrics in Prometheus' text format 0.0.4.
    pub fn text(&self) -> String {
        let mut out = Vec::new();
        // Writing into memory does not fail.
        let _ = self.scrape().write_to(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    pub(crate) fn readers(&self) -> &Readers {
        &self.inner.readers
    }

    pub(crate) fn collectors(&self) -> Arc<[Arc<dyn Collector>]> {
        self.inner.collectors.read(Arc::clone)
    }

    pub(crate) fn hidden(&self) -> Arc<[Arc<str>]> {
        self.inner.hidden.read(Arc::clone)
    }

    pub(crate) fn give_back(&self, buffers: Box<Buffers>) {
        let buffers = Box::into_raw(buffers);
        for place in &self.inner.buffers {
            let null = std::ptr::null_mut();
            // Release: pairs with the acquire in `scrape`.
            let given = place.compare_exchange(null, buffers, Ordering::Release, Ordering::Relaxed);
            if given.is_ok() {
                return;
            }
        }
        // SAFETY: it is from above, and every exchange failed: no other thread has seen it.
        drop(unsafe { Box::from_raw(buffers) });
    }

    fn claim(&self, name: &str) -> Result<(), Error> {
        if !self.inner.names.claim(name) {
            return Err(Error::duplicate(name));
        }
        self.inner.hidden.replace(|hidden| match find(hidden, name) {
            Ok(at) => (Some(without(hidden, at).into()), ()),
            Err(_) => (None, ()),
        });
        Ok(())
    }
}

/// A set of names, split into parts by hash: adding or removing a name copies one part only.
struct Names {
    parts: [ForkSafeCell<Vec<Arc<str>>>; NAME_PARTS],
}

const NAME_PARTS: usize = 64;

impl Default for Names {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| ForkSafeCell::default()) }
    }
}

impl Names {
    fn has(&self, name: &str) -> bool {
        self.part(name).read(|names| find(names, name).is_ok())
    }

    /// Adds a name; returns false if it is there already.
    fn claim(&self, name: &str) -> bool {
        self.part(name).replace(|names| match find(names, name) {
            Ok(_) => (None, false),
            Err(at) => (Some(with(names, at, name)), true),
        })
    }

    /// Removes a name; returns false if it is not there.
    fn release(&self, name: &str) -> bool {
        self.part(name).replace(|names| match find(names, name) {
            Ok(at) => (Some(without(names, at)), true),
            Err(_) => (None, false),
        })
    }

    fn part(&self, name: &str) -> &ForkSafeCell<Vec<Arc<str>>> {
        let hash = quipu_segment::hash::fnv1a(name.as_bytes());
        &self.parts[(hash >> 32) as usize % NAME_PARTS]
    }
}

fn find(names: &[Arc<str>], name: &str) -> Result<usize, usize> {
    names.binary_search_by(|other| (**other).cmp(name))
}

fn with(names: &[Arc<str>], at: usize, name: &str) -> Vec<Arc<str>> {
    let (before, behind) = names.split_at(at);
    before.iter().cloned().chain([name.into()]).chain(behind.iter().cloned()).collect()
}

fn without(names: &[Arc<str>], at: usize) -> Vec<Arc<str>> {
    names[..at].iter().chain(&names[at + 1..]).cloned().collect()
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("segment", &self.inner.segment).finish_non_exhaustive()
    }
}

impl<'r> Scope<'r> {
    /// The registry.
    pub fn registry(&self) -> &'r Registry {
        self.registry
    }

    /// A scope that adds `prefix` and an underscore to the names, after this one's own prefix.
    pub fn prefix(&self, prefix: &str) -> Self {
        let prefix = match (self.prefix.as_str(), prefix) {
            (outer, "") => outer.to_owned(),
            ("", inner) => inner.to_owned(),
            (outer, inner) => format!("{outer}_{inner}"),
        };
        Self { prefix, ..self.clone() }
    }

    /// A scope whose metrics all have this label.
    pub fn label(&self, name: &str, value: &str) -> Self {
        let mut scope = self.clone();
        scope.labels.push((name.to_owned(), value.to_owned()));
        scope
    }

    /// Registers an instrument or a family in this scope.
    ///
    /// # Errors
    /// Those of [`Register::register`].
    pub fn register<R: Register>(&self, description: Description) -> Result<R, Error> {
        R::register(self, description)
    }

    /// Registers a group of metrics in this scope.
    ///
    /// # Errors
    /// Those of [`Metrics::register`].
    pub fn metrics<M: Metrics>(&self) -> Result<M, Error> {
        M::register(self)
    }

    /// Registers a gauge whose value every scrape obtains by calling `value`.
    ///
    /// # Errors
    /// Those of [`Register::register`].
    pub fn gauge_fn(
        &self,
        description: Description,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let callback = self.callback(description, snapshot::Kind::Gauge, value)?;
        self.registry.collect(callback)
    }

    /// Registers a counter whose total every scrape obtains by calling `total`. The total must
    /// never decrease.
    ///
    /// # Errors
    /// Those of [`Register::register`].
    pub fn counter_fn(
        &self,
        description: Description,
        total: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let callback = self.callback(description, snapshot::Kind::Counter, total)?;
        self.registry.collect(callback)
    }

    /// The name of a metric in this scope, with prefix and unit.
    pub fn full_name(&self, description: &Description) -> String {
        let name = description.full_name();
        if self.prefix.is_empty() { name } else { format!("{}_{name}", self.prefix) }
    }

    pub(crate) fn callback(
        &self,
        description: Description,
        kind: snapshot::Kind,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<Callback, Error> {
        let name = self.full_name(&description);
        names::check_metric(&name, description.verbatim)?;
        let Description { help, unit, .. } = description;
        Ok(Callback::new(name, help, unit, kind, self.labels.clone(), Box::new(value)))
    }

    /// Creates a family, or opens the one in the segment.
    pub(crate) fn family<I: Instrument>(
        &self,
        description: &Description,
        labels: &[snapshot::Label<'_>],
        count: usize,
    ) -> Result<series::Family, Error> {
        let name = self.full_name(description);
        names::check_metric(&name, description.verbatim)?;
        let mut schema = Schema {
            name: name.clone(),
            help: description.help.clone(),
            unit: description.unit.clone(),
            limit: description.limit,
            idle: description.expiry,
            apart: description.apart,
            ..Schema::default()
        };
        I::describe(description, &mut schema)?;
        schema.additive &= description.striped.unwrap_or(true);
        if count != label::ANY && labels.len() + description.labels.len() != count {
            let (given, names) = (labels.len() + description.labels.len(), count);
            let what = format!(
                "it has {given} labels, but its label type has {names} values: name one label for \
                 each value"
            );
            return Err(Error::invalid(&name, what));
        }
        schema.labels =
            self.labels(&name, description, labels, std::mem::take(&mut schema.labels))?;
        if !description.apart {
            self.registry.claim(&name)?;
        }
        self.registry.segment().family(&schema).map_err(|error| {
            if !description.apart {
                self.registry.inner.names.release(&name);
            }
            Error::segment(&name, error)
        })
    }

    fn labels(
        &self,
        metric: &str,
        description: &Description,
        labels: &[snapshot::Label<'_>],
        instruments: Vec<Label>,
    ) -> Result<Vec<Label>, Error> {
        let own = labels.iter().map(|label| Label {
            name: label.name.to_owned(),
            values: label.values.map(|v| v.iter().map(|&text| text.to_owned()).collect()),
        });
        let named =
            description.labels.iter().map(|name| Label { name: name.clone(), values: None });
        let constant = self
            .labels
            .iter()
            .map(|(name, value)| Label { name: name.clone(), values: Some(vec![value.clone()]) });
        // The constant ones last: a key is written with the caller's own values first, and a label
        // with a single value does not change the group.
        let mut all: Vec<Label> = own.chain(named).chain(constant).collect();
        for (name, values) in &description.values {
            let label = all.iter_mut().find(|label| label.name == *name);
            let label = label.ok_or_else(|| {
                let what = format!("values are given for {name:?}, which is not one of its labels");
                Error::invalid(metric, what)
            })?;
            if label.values.is_some() {
                let what = format!("the type of the label {name:?} sets its values: omit them");
                return Err(Error::invalid(metric, what));
            }
            label.values = Some(values.clone());
        }
        // The instrument's own labels follow the values that the caller writes.
        let own = labels.len() + description.labels.len();
        all.splice(own..own, instruments);
        for (i, label) in all.iter().enumerate() {
            names::check_label(metric, &label.name, description.verbatim)?;
            if all[..i].iter().any(|other| other.name == label.name) {
                let what = format!("the label {:?} appears twice: rename one", label.name);
                return Err(Error::invalid(metric, what));
            }
        }
        Ok(all)
    }
}
