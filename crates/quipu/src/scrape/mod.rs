//! A scrape: walks all families of a registry once and encodes them, in pieces.

#[cfg(unix)]
mod decoder;
mod reader;
mod walk;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

#[cfg(unix)]
pub use decoder::{Decoder, each_series, visit_inspected};
pub(crate) use reader::Readers;
pub use reader::Source;
pub use walk::Walk;

use crate::exposition::{Encoder, Escaping, Format, Omissions};
use crate::registry::Registry;

/// A scrape of a registry. It returns the page in pieces of about 64 KiB, in any of the
/// [`Format`]s. You can read the pieces as slowly as you like: the scrape holds no lock between
/// them, so it never blocks another thread.
///
/// ```
/// let registry = quipu::Registry::new();
/// registry.counter("jobs", "Completed jobs.")?.inc();
/// let mut out = Vec::new();
/// registry.scrape().append_to(&mut out);
/// let text = "# HELP jobs_total Completed jobs.\n# TYPE jobs_total counter\njobs_total 1\n";
/// assert_eq!(String::from_utf8_lossy(&out), text);
/// # Ok::<(), quipu::Error>(())
/// ```
#[must_use = "a scrape reads nothing until you read its pieces"]
pub struct Scrape {
    registry: Registry,
    /// Returned to the registry on drop, for the next scrape.
    buffers: Option<Box<Buffers>>,
    format: Format,
    escaping: Escaping,
    /// The names of the families to show; `None` for all.
    wanted: Option<Arc<[String]>>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Fresh,
    Walking,
    Over,
}

/// The memory of a scrape, reused by later ones.
#[derive(Default)]
pub(crate) struct Buffers {
    walk: Walk,
    encoder: Encoder,
}

/// Buffers of finished scrapes, for later ones. A running scrape owns its buffers.
#[derive(Default)]
pub(crate) struct SpareBuffers([AtomicPtr<Buffers>; MAX_SPARE]);

/// The number of scrapes whose buffers are kept.
const MAX_SPARE: usize = 4;
/// A piece of at least this many bytes is full.
const PIECE: usize = 64 << 10;

impl Scrape {
    pub(crate) fn new(registry: Registry, buffers: Box<Buffers>) -> Self {
        let (format, escaping) = (Format::default(), Escaping::default());
        let (wanted, stage) = (None, Stage::Fresh);
        Self { registry, buffers: Some(buffers), format, escaping, wanted, stage }
    }

    /// Chooses the format; the default is text 0.0.4. Call this before the first piece; later calls
    /// have no effect.
    pub fn format(mut self, format: Format, escaping: Escaping) -> Self {
        (self.format, self.escaping) = (format, escaping);
        self
    }

    /// Shows only the families with these names, or with samples of these names: for example,
    /// `latency_count` selects the histogram `latency`. Call this before the first piece; later
    /// calls have no effect.
    pub fn only(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.wanted = Some(names.into_iter().collect());
        self
    }

    /// Returns the value of the `Content-Type` header for the chosen format.
    pub fn content_type(&self) -> String {
        self.format.content_type(self.escaping)
    }

    /// Returns the next piece; `None` after the last.
    pub fn next_piece(&mut self) -> Option<&[u8]> {
        let Buffers { walk, encoder } = &mut **self.buffers.as_mut()?;
        match self.stage {
            Stage::Fresh => {
                begin(walk, encoder, (&self.registry, self.format, self.escaping), &self.wanted);
                self.stage = Stage::Walking;
            }
            Stage::Walking => encoder.buffer_mut().clear(),
            Stage::Over => return None,
        }
        if !walk.step(encoder, |encoder| encoder.buffer().len() >= PIECE) {
            encoder.finish();
            self.stage = Stage::Over;
        }
        Some(encoder.buffer())
    }

    /// Returns the series that the pieces so far omit, because a scraper would refuse a page that
    /// contains them.
    pub fn omissions(&self) -> Option<&Omissions> {
        self.buffers.as_ref().map(|buffers| buffers.encoder.omissions())
    }

    /// Appends all remaining pieces to `out`. This encodes them in place, without the copy that
    /// [`Scrape::write_to`] makes of each. If a collector panics, the content of `out` is
    /// unspecified.
    pub fn append_to(mut self, out: &mut Vec<u8>) {
        let Some(Buffers { walk, encoder }) = self.buffers.as_deref_mut() else { return };
        match self.stage {
            Stage::Fresh => {
                begin(walk, encoder, (&self.registry, self.format, self.escaping), &self.wanted);
            }
            Stage::Walking => {}
            Stage::Over => return,
        }
        std::mem::swap(encoder.buffer_mut(), out);
        walk.step(encoder, |_| false);
        encoder.finish();
        std::mem::swap(encoder.buffer_mut(), out);
    }

    /// Writes all remaining pieces to `out`.
    ///
    /// # Errors
    /// The errors of the writer.
    pub fn write_to(mut self, out: &mut (impl io::Write + ?Sized)) -> io::Result<()> {
        while let Some(piece) = self.next_piece() {
            out.write_all(piece)?;
        }
        Ok(())
    }
}

/// Begins the walk of a scrape in that format.
fn begin(
    walk: &mut Walk,
    encoder: &mut Encoder,
    scrape: (&Registry, Format, Escaping),
    wanted: &Option<Arc<[String]>>,
) {
    let (registry, format, escaping) = scrape;
    encoder.reset(format, escaping);
    // Inconsistent segments are rejected when they are opened.
    let _ = walk.begin(registry);
    walk.only(wanted.clone());
}

impl Drop for Scrape {
    fn drop(&mut self) {
        if let Some(mut buffers) = self.buffers.take() {
            buffers.walk.end();
            self.registry.spare_buffers().put(buffers);
        }
    }
}

impl SpareBuffers {
    pub(crate) fn take(&self) -> Box<Buffers> {
        let mut spare = self.0.iter().map(|slot| {
            // Acquire: pairs with the release in `put`, to see the buffers in their last state.
            slot.swap(std::ptr::null_mut(), Ordering::Acquire)
        });
        let buffers = spare.find(|buffers| !buffers.is_null()).map(|buffers| {
            // SAFETY: the pointer is from `Box::into_raw`, and the swap makes this thread its only
            // owner.
            unsafe { Box::from_raw(buffers) }
        });
        buffers.unwrap_or_default()
    }

    fn put(&self, buffers: Box<Buffers>) {
        let buffers = Box::into_raw(buffers);
        for slot in &self.0 {
            let null = std::ptr::null_mut();
            // Release: pairs with the acquire in `take`.
            let put = slot.compare_exchange(null, buffers, Ordering::Release, Ordering::Relaxed);
            if put.is_ok() {
                return;
            }
        }
        // SAFETY: the pointer is from above, and every exchange failed: no other thread can see it.
        drop(unsafe { Box::from_raw(buffers) });
    }
}

impl Drop for SpareBuffers {
    fn drop(&mut self) {
        for buffers in &mut self.0 {
            let buffers = *buffers.get_mut();
            if !buffers.is_null() {
                // SAFETY: the pointer is from `Box::into_raw`, and no scrape owns it, because
                // taking clears the slot.
                drop(unsafe { Box::from_raw(buffers) });
            }
        }
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").field("format", &self.format).finish_non_exhaustive()
    }
}
