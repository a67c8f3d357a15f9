//! The segments of a store, and the registries on them.
//!
//! Two applications that share a store can describe a metric of one name differently. The later one
//! then uses a further segment, which all processes with the same description share: next to
//! `metrics.quipu`, the files `metrics.1.quipu`, `metrics.2.quipu` and so on. If a shared segment
//! is too full for a metric, the metric is in private memory.
//!
//! A file that is damaged or of another version is set aside as `metrics.quipu.aside-1`, `-2` and
//! so on, and a new one is created in its place.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu::Registry;
use quipu_segment::{ErrorKind, ForkSafeCell, Segment, SetAside, printable};

use crate::error::Error;
use crate::lock::Lock;
use crate::segment::SegmentOptions;

/// The segments of a store and its views: the first, and the further ones that this process opened
/// so far.
pub(crate) struct Pool {
    options: SegmentOptions,
    first: Segment,
    further: ForkSafeCell<Vec<Segment>>,
    /// Held while a further segment is opened, because a process must open each once.
    opening: Lock,
}

/// A registry on each segment of a pool. Several of these on one pool are independent: registering
/// or hiding a name in one does not affect the others.
pub(crate) struct Registries {
    pool: Arc<Pool>,
    first: Registry,
    further: ForkSafeCell<Vec<Registry>>,
    /// In private memory: for metrics that did not fit into a shared segment.
    own: ForkSafeCell<Option<Registry>>,
}

/// The maximum number of descriptions of one name that are kept apart.
const MAX_SEGMENTS: usize = 10;
/// The smallest limit to try if the address space is too small, in bytes.
const MIN_LIMIT: u64 = 256 << 10;

impl Pool {
    pub(crate) fn new(options: SegmentOptions, first: Segment) -> Arc<Self> {
        let (further, opening) = (ForkSafeCell::default(), Lock::new());
        Arc::new(Self { options, first, further, opening })
    }

    /// Returns the further segments: at least `count` of them, if they can be opened.
    fn further(&self, count: usize) -> Result<Vec<Segment>, Error> {
        let _guard = self.opening.lock();
        let mut segments = self.further.read(Vec::clone);
        while segments.len() < count {
            let segment = match self.first.path() {
                Some(path) => self.options.in_file(&numbered(path, segments.len() + 1))?,
                None => self.options.in_memory(None)?,
            };
            // The callback for warnings can call this function, and open the same segment.
            segments = self.further.replace(|further| {
                let is_next = further.len() == segments.len();
                let all = further.iter().cloned().chain(is_next.then_some(segment));
                let all: Vec<Segment> = all.collect();
                (Some(all.clone()), all)
            });
        }
        Ok(segments)
    }
}

impl Registries {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        let first = Registry::from_segment(pool.first.clone());
        let (further, own) = (ForkSafeCell::default(), ForkSafeCell::default());
        Self { pool, first, further, own }
    }

    /// Returns further registries on the same segments.
    pub(crate) fn view(&self) -> Self {
        Self::new(Arc::clone(&self.pool))
    }

    pub(crate) fn options(&self) -> &SegmentOptions {
        &self.pool.options
    }

    pub(crate) fn first(&self) -> &Registry {
        &self.first
    }

    /// Returns the registries on all segments that were opened so far, and the one in private
    /// memory.
    pub(crate) fn all(&self) -> Vec<Registry> {
        let further = self.on(&self.pool.further.read(Vec::clone));
        let own = self.own.read(Option::clone);
        std::iter::once(self.first.clone()).chain(further).chain(own).collect()
    }

    /// Calls `register` with one registry after another, while `is_taken` returns true for its
    /// error because another description uses the name. If there is no room, tries the registry in
    /// private memory last. Also returns the registry where it succeeded.
    pub(crate) fn register<T>(
        &self,
        name: &str,
        register: impl Fn(&Registry) -> Result<T, quipu::Error>,
        is_taken: impl Fn(&quipu::Error) -> bool,
    ) -> Result<(T, Registry), Error> {
        let mut taken = None;
        for number in 0..MAX_SEGMENTS {
            let registry = self.numbered(number)?;
            match register(&registry) {
                Ok(made) => {
                    if let Some(why) = taken {
                        let place = registry.segment().path();
                        let place = place.map_or_else(|| "memory".into(), Path::to_string_lossy);
                        (self.options().warn)(&format!("{why}; it is kept apart, in {place}"));
                    }
                    return Ok((made, registry));
                }
                Err(error) if is_taken(&error) => taken = Some(error),
                Err(error) if error.is_duplicate() => {
                    return Err(Error::because(name, "it is already registered", error));
                }
                Err(error) => return self.register_in_private_memory(name, register, error),
            }
        }
        let reason = "too many applications describe it differently in one directory; give each a \
                    directory of its own, or remove the files while none of them runs";
        Err(Error::new(name, reason))
    }

    /// Registers a metric in private memory that was refused with the error `why`. If there was no
    /// room, this solves the problem. If the description is invalid, it is refused again.
    fn register_in_private_memory<T>(
        &self,
        name: &str,
        register: impl Fn(&Registry) -> Result<T, quipu::Error>,
        why: quipu::Error,
    ) -> Result<(T, Registry), Error> {
        let own = self.own()?;
        let Ok(made) = register(&own) else {
            return Err(Error::because(name, "it cannot be created", why));
        };
        (self.options().warn)(&format!("{why}; it is kept in the memory of this process alone"));
        Ok((made, own))
    }

    /// Returns the registry on the segment of this number, which is opened if necessary.
    fn numbered(&self, number: usize) -> Result<Registry, Error> {
        let Some(index) = number.checked_sub(1) else { return Ok(self.first.clone()) };
        Ok(self.on(&self.pool.further(number)?).swap_remove(index))
    }

    /// Returns the registries on these further segments of the pool, and creates missing ones.
    fn on(&self, segments: &[Segment]) -> Vec<Registry> {
        self.further.replace(|further| {
            let missing = segments.get(further.len()..).unwrap_or_default();
            let made = missing.iter().map(|segment| Registry::from_segment(segment.clone()));
            let all: Vec<Registry> = further.iter().cloned().chain(made).collect();
            ((!missing.is_empty()).then(|| all.clone()), all)
        })
    }

    /// Returns the registry in private memory, which is created if it does not exist.
    fn own(&self) -> Result<Registry, Error> {
        if let Some(own) = self.own.read(Option::clone) {
            return Ok(own);
        }
        let made = Registry::from_segment(self.options().in_private_memory()?);
        // If two threads create it at once, the first to store its registry wins.
        Ok(self.own.replace(|own| match own {
            Some(own) => (None, own.clone()),
            None => (Some(Some(made.clone())), made.clone()),
        }))
    }
}

/// Creates segments. If a file cannot be used, the segment is in memory, and the store warns.
impl SegmentOptions {
    /// Opens or creates a file, and sets aside one that is useless. If the file cannot be used
    /// after all, creates a segment in memory.
    pub(crate) fn in_file(&self, path: &Path) -> Result<Segment, Error> {
        let names = |error: &quipu_segment::Error| is_useless(error).then(|| SetAside::names(path));
        let (segment, aside) =
            match self.file.clone().limit(self.limit).open_or_replace(path, names) {
                Ok(opened) => opened,
                Err(error) => return self.in_memory(Some(&error.to_string())),
            };
        if let Some(SetAside { error, name }) = aside {
            (self.warn)(&format!(
                "{error}; renamed it to {}, and created a new one",
                printable(&name)
            ));
        }
        Ok(segment)
    }

    /// Creates a segment in memory that children of forks share, or else in private memory. Warns
    /// if there is a reason `why` it is not in a file, or if it is in private memory.
    pub(crate) fn in_memory(&self, why: Option<&str>) -> Result<Segment, Error> {
        let mut why = why.map(str::to_owned);
        let (segment, who) = match with_largest_limit(self.limit, Segment::anonymous) {
            Ok(segment) => (segment, "this process and the children of its forks"),
            Err(error) => {
                why.get_or_insert_with(|| error.to_string());
                (self.in_private_memory()?, "this process alone")
            }
        };
        if let Some(why) = why {
            (self.warn)(&format!("{why}; metrics are kept in memory, for {who}"));
        }
        Ok(segment)
    }

    /// Creates a segment in private memory.
    pub(crate) fn in_private_memory(&self) -> Result<Segment, Error> {
        with_largest_limit(self.limit, Segment::private).map_err(|error| {
            let reason = "not enough memory; raise the limits of this process";
            Error::because("segment", reason, error)
        })
    }
}

/// Creates a segment with this limit, or with a smaller one if the address space is too small.
fn with_largest_limit(
    mut limit: u64,
    make: impl Fn(u64) -> Result<Segment, quipu_segment::Error>,
) -> Result<Segment, quipu_segment::Error> {
    loop {
        match make(limit) {
            Err(_) if limit / 2 >= MIN_LIMIT => limit /= 2,
            result => return result,
        }
    }
}

/// Returns whether the file is a segment that cannot be used: damaged, or of another version.
fn is_useless(error: &quipu_segment::Error) -> bool {
    error.is_damage() || matches!(error.kind(), ErrorKind::Version { .. })
}

/// Returns, for example, `metrics.1.quipu` for `metrics.quipu`.
fn numbered(path: &Path, number: usize) -> PathBuf {
    let extension = path.extension().map(|extension| extension.to_string_lossy());
    path.with_extension(format!("{number}.{}", extension.as_deref().unwrap_or("quipu")))
}
