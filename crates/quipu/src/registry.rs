//! The registry: where metrics get their names, and what a scrape reads.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use quipu_segment::series::{self, Label, Schema};
use quipu_segment::{Options, Replaced, Segment};

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
/// A child that is forked may use it whatever other threads of its parent were at.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    segment: Segment,
    /// The names that are registered.
    names: Names,
    /// Those that were, and are no more, in order: their families are not shown.
    hidden: Replaced<Arc<[Arc<str>]>>,
    collectors: Replaced<Arc<[Arc<dyn Collector>]>>,
    readers: Readers,
    /// Memory of scrapes that are over, for those to come: each is taken out by who uses it.
    buffers: [AtomicPtr<Buffers>; MOST_BUFFERS],
}

impl Drop for Inner {
    fn drop(&mut self) {
        for buffers in &mut self.buffers {
            let buffers = *buffers.get_mut();
            if !buffers.is_null() {
                // SAFETY: it is from `Box::into_raw`, and nobody has taken it out.
                drop(unsafe { Box::from_raw(buffers) });
            }
        }
    }
}

/// A registry as a part of a program sees it: with a prefix for names, and constant labels.
#[derive(Debug, Clone)]
pub struct Scope<'r> {
    registry: &'r Registry,
    prefix: String,
    labels: Vec<(String, String)>,
}

/// What can be registered under a description: an instrument, or a family of them.
pub trait Register: Sized {
    /// Registers it.
    ///
    /// # Errors
    /// A name that is taken or cannot be, other settings than those of the family that is there, a
    /// full segment.
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error>;
}

/// A group of metrics. Derive it for a struct of instruments and families.
pub trait Metrics: Sized {
    /// Registers all of them.
    ///
    /// # Errors
    /// Those of the first that cannot be registered.
    fn register(scope: &Scope<'_>) -> Result<Self, Error>;
}

/// The addresses that private memory reserves; what is not used takes no memory.
const PRIVATE_LIMIT: u64 = 1 << 30;
const LEAST_PRIVATE_LIMIT: u64 = 16 << 20;
/// The scrapes whose memory is kept.
const MOST_BUFFERS: usize = 4;

impl Registry {
    /// A registry in private memory, of at most 1 GiB.
    ///
    /// # Panics
    /// If the system does not let this process reserve even 16 MiB of addresses.
    pub fn new() -> Self {
        let mut limit = PRIVATE_LIMIT;
        loop {
            match Segment::private(limit) {
                Ok(segment) => return Self::on(segment),
                Err(_) if limit > LEAST_PRIVATE_LIMIT => limit /= 2,
                Err(error) => panic!("no memory for metrics: {error}"),
            }
        }
    }

    /// A registry in a segment that is there: with another limit, or in a file that this process
    /// has for itself.
    pub fn on(segment: Segment) -> Self {
        let inner = Inner {
            segment,
            names: Names::default(),
            hidden: Replaced::default(),
            collectors: Replaced::new(Arc::new([])),
            readers: Readers::default(),
            buffers: Default::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A registry in a file, which other processes may open too: all count in the same cells, and
    /// each can show everything. The file outlives them.
    ///
    /// # Errors
    /// A file that is no segment, is damaged, or cannot be written.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Ok(Self::on(Options::new().shared().open_or_create(path)?))
    }

    /// The registry of the whole program, made when it is first asked for.
    pub fn global() -> &'static Self {
        static GLOBAL: AtomicPtr<Registry> = AtomicPtr::new(std::ptr::null_mut());
        let mut global = GLOBAL.load(Ordering::Acquire);
        if global.is_null() {
            // No lock: a child that is forked while another thread is here would wait for it. Of
            // two threads that come first, one has made its registry in vain.
            let made = Box::into_raw(Box::new(Self::new()));
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            global = match GLOBAL.compare_exchange(global, made, success, failure) {
                Ok(_) => made,
                Err(first) => {
                    // SAFETY: nobody else has seen what was made here.
                    drop(unsafe { Box::from_raw(made) });
                    first
                }
            };
        }
        // SAFETY: it is from `Box::into_raw`, and is never dropped nor changed.
        unsafe { &*global }
    }

    /// The segment in which its metrics live.
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

    /// Registers a gauge of whole numbers.
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

    /// A view of it without prefix and labels, from which others are made.
    pub fn scope(&self) -> Scope<'_> {
        Scope { registry: self, prefix: String::new(), labels: Vec::new() }
    }

    /// A view of it whose names begin with `prefix` and an underscore.
    pub fn prefix(&self, prefix: &str) -> Scope<'_> {
        self.scope().prefix(prefix)
    }

    /// Adds a collector: it is asked for its families at every scrape, after the registry's own.
    ///
    /// # Errors
    /// A name of its families that is taken.
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

    /// Takes a metric out of the registry of this process: it is not shown any more, and its name
    /// may be registered again. False where no metric of that name is registered.
    ///
    /// The family and its counts stay in the segment, where other processes may use them: whoever
    /// registers the name again goes on with them, under a description that does not contradict the
    /// first. A collector goes with all of its names.
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
        // Hidden before its name is free: who registers it then shows it again.
        if inner.names.has(name) {
            inner.hidden.replace(|hidden| match find(hidden, name) {
                Ok(_) => (None, ()),
                Err(at) => (Some(with(hidden, at, name).into()), ()),
            });
        }
        let was_there = names.iter().map(|name| inner.names.release(name));
        was_there.fold(false, |any, one| any | one)
    }

    /// Begins everything anew: all counts are zero, for all processes that count in the segment,
    /// and series that no handle is bound to are gone. What is counted meanwhile may go, too.
    ///
    /// # Errors
    /// A segment whose families contradict themselves, and its locks' errors.
    pub fn reset(&self) -> Result<(), Error> {
        for reader in self.inner.readers.of(&self.inner.segment)?.iter() {
            reader.reset()?;
        }
        for collector in self.collectors().iter() {
            collector.reset();
        }
        Ok(())
    }

    /// Begins a scrape. It takes no lock that counting waits for, and allocates nothing once a
    /// scrape has been.
    pub fn scrape(&self) -> Scrape {
        let mut kept = self.inner.buffers.iter().map(|place| {
            // Acquire: sees the memory as it was left.
            place.swap(std::ptr::null_mut(), Ordering::Acquire)
        });
        let buffers = kept.find(|buffers| !buffers.is_null()).map(|buffers| {
            // SAFETY: it is from `Box::into_raw`, and who takes it out is the only one to have it.
            unsafe { Box::from_raw(buffers) }
        });
        Scrape::new(self.clone(), buffers.unwrap_or_default())
    }

    /// Gives everything to a sink, which may be an encoder, a sender, or a test.
    ///
    /// # Errors
    /// A segment whose families contradict themselves.
    pub fn visit(&self, sink: &mut impl snapshot::Sink) -> Result<(), Error> {
        let mut walk = Walk::default();
        walk.begin(self)?;
        walk.step(sink, |_| false);
        Ok(())
    }

    /// Gives one family of the segment to a sink; false where there is none of that name.
    ///
    /// # Errors
    /// A segment whose families contradict themselves.
    pub fn visit_family(&self, name: &str, sink: &mut impl snapshot::Sink) -> Result<bool, Error> {
        let mut walk = Walk::default();
        walk.begin(self)?;
        let is_there = walk.narrow(name);
        if is_there {
            walk.step(sink, |_| false);
        }
        Ok(is_there)
    }

    /// Gives the families of the segment whose names are wanted to a sink, and then those of
    /// `more`.
    ///
    /// # Errors
    /// A segment whose families contradict themselves.
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

    /// As [`Registry::visit`], without what collectors and callbacks say: what lies in the segment.
    ///
    /// # Errors
    /// As there.
    pub fn visit_segment(&self, sink: &mut impl snapshot::Sink) -> Result<(), Error> {
        let mut walk = Walk::default();
        walk.begin_segment(self)?;
        walk.step(sink, |_| false);
        Ok(())
    }

    /// Everything, in Prometheus' text format.
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
            // Release: as above.
            let given = place.compare_exchange(null, buffers, Ordering::Release, Ordering::Relaxed);
            if given.is_ok() {
                return;
            }
        }
        // SAFETY: it is from above, and nobody has taken it.
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

/// A set of names, in parts, so that a name that comes or goes copies one part and not all.
struct Names {
    parts: [Replaced<Vec<Arc<str>>>; NAME_PARTS],
}

const NAME_PARTS: usize = 64;

impl Default for Names {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Replaced::default()) }
    }
}

impl Names {
    fn has(&self, name: &str) -> bool {
        self.part(name).read(|names| find(names, name).is_ok())
    }

    /// Puts a name in; false where it is there.
    fn claim(&self, name: &str) -> bool {
        self.part(name).replace(|names| match find(names, name) {
            Ok(_) => (None, false),
            Err(at) => (Some(with(names, at, name)), true),
        })
    }

    /// Takes a name out; false where it is not there.
    fn release(&self, name: &str) -> bool {
        self.part(name).replace(|names| match find(names, name) {
            Ok(at) => (Some(without(names, at)), true),
            Err(_) => (None, false),
        })
    }

    fn part(&self, name: &str) -> &Replaced<Vec<Arc<str>>> {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
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

    /// A scope whose names begin with `prefix` and an underscore, behind this one's prefix.
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

    /// Registers a gauge whose value is asked for at every scrape.
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

    /// Registers a counter whose total is asked for at every scrape; it must never fall.
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

    /// The name of a metric in this scope.
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

    /// Makes the series of a family, or opens those that are in the segment.
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
            let what = format!("it has {given} labels, and each series is given {names} values");
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
        // The constant ones last: whoever writes a key writes its own first, and one more value of
        // one does not change the group.
        let mut all: Vec<Label> = own.chain(named).chain(constant).collect();
        for (name, values) in &description.values {
            let label = all.iter_mut().find(|label| label.name == *name);
            let label = label.ok_or_else(|| {
                let what = format!("values are given for {name:?}, which is none of its labels");
                Error::invalid(metric, what)
            })?;
            if label.values.is_some() {
                let what = format!("the values of the label {name:?} are given by its type");
                return Err(Error::invalid(metric, what));
            }
            label.values = Some(values.clone());
        }
        // Behind what its user writes.
        let own = labels.len() + description.labels.len();
        all.splice(own..own, instruments);
        for (i, label) in all.iter().enumerate() {
            names::check_label(metric, &label.name, description.verbatim)?;
            if all[..i].iter().any(|other| other.name == label.name) {
                let what = format!("the label {:?} is there twice; rename one", label.name);
                return Err(Error::invalid(metric, what));
            }
        }
        Ok(all)
    }
}
