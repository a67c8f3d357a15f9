//! `RegistryOptions`: creates a registry that differs from the default.

#[cfg(unix)]
use std::path::Path;

use quipu_segment::Segment;

use crate::error::Error;
use crate::registry::Registry;
use crate::test_clock::TestClock;

/// Creates a [`Registry`] that differs from the default: for example, in a file with other
/// permissions, with another limit, or with a clock for tests. [`Registry::options`] returns the
/// defaults.
///
/// ```no_run
/// use quipu::Registry;
///
/// // The members of group 1000 may open the file, too.
/// let registry =
///     Registry::options().mode(0o660).group(1000).max_bytes(1 << 30).open("metrics.quipu")?;
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "create the registry with build or open"]
pub struct RegistryOptions {
    limit: Option<u64>,
    #[cfg(unix)]
    mode: Option<u32>,
    #[cfg(unix)]
    group: Option<u32>,
    clock: Option<TestClock>,
}

impl RegistryOptions {
    /// Creates the defaults, like [`Registry::options`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum size of the registry in bytes: at most 1 TiB, by default 1 GiB in private
    /// memory and 256 MiB in a file. This much address space is reserved; unused pages take no
    /// memory. An existing file keeps its original limit.
    ///
    /// When the registry is full, updates with new labels are counted in the overflow series of
    /// their family.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// Sets the permission bits of a new file, regardless of the umask; 0600 by default. An
    /// existing file keeps its bits.
    ///
    /// A process that can write the file can change every count. A process that can read it can
    /// hold locks on it, and so keep others from opening it or from creating series.
    #[cfg(unix)]
    pub fn mode(mut self, bits: u32) -> Self {
        self.mode = Some(bits);
        self
    }

    /// Sets the group id of a new file. Without privileges, this must be a group of the process. An
    /// existing file keeps its group.
    #[cfg(unix)]
    pub fn group(mut self, id: u32) -> Self {
        self.group = Some(id);
        self
    }

    /// Sets the clock that determines when series [expire](crate::Description::expire_after), for
    /// tests. Summaries and windows keep the clock of the machine.
    pub fn clock(mut self, clock: &TestClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Creates a registry in private memory.
    ///
    /// # Errors
    /// If the limit is out of range, or if the system does not let this process reserve the address
    /// space. If you set no limit, smaller ones are tried, down to 16 MiB.
    pub fn build(&self) -> Result<Registry, Error> {
        let segment = match self.limit {
            Some(limit) => Segment::private(limit),
            None => default_memory(),
        };
        segment.map(|segment| self.registry(segment)).map_err(Error::from_segment)
    }

    /// Opens a registry in a file, or creates the file: see [`Registry::open`].
    ///
    /// # Errors
    /// If the file is not a segment, is damaged, or cannot be written, or if an option is out of
    /// range.
    #[cfg(unix)]
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Registry, Error> {
        let mut options = quipu_segment::Options::new().shared();
        if let Some(limit) = self.limit {
            options = options.limit(limit);
        }
        if let Some(mode) = self.mode {
            options = options.mode(mode);
        }
        if let Some(group) = self.group {
            options = options.group(group);
        }
        let segment = options.open_or_create(path).map_err(Error::from_segment)?;
        Ok(self.registry(segment))
    }

    fn registry(&self, segment: Segment) -> Registry {
        Registry::from_segment(match &self.clock {
            Some(clock) => segment.with_clock(clock.inner()),
            None => segment,
        })
    }
}

/// Returns private memory with the largest limit that the system grants.
fn default_memory() -> Result<Segment, quipu_segment::Error> {
    let mut limit = PRIVATE_LIMIT;
    loop {
        match Segment::private(limit) {
            Err(_) if limit > MIN_PRIVATE_LIMIT => limit /= 2,
            result => return result,
        }
    }
}

/// The address space that private memory reserves, in bytes.
const PRIVATE_LIMIT: u64 = 1 << 30;
const MIN_PRIVATE_LIMIT: u64 = 16 << 20;
