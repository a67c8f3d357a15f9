//! A scrape: walks all families of a registry once and encodes them, in pieces.

use std::fmt;
use std::io;

use crate::exposition::{Encoder, Escaping, Format};
use crate::registry::Registry;
use crate::visit::Walk;

/// A scrape of a registry. It returns the text, or another format, in pieces of about 64 KiB and
/// holds no lock between pieces: a reader that is slow or never returns blocks no other thread.
///
/// ```
/// let registry = quipu::Registry::new();
/// registry.counter("jobs", "Completed jobs.")?.inc();
/// let mut out = Vec::new();
/// registry.scrape().write_to(&mut out).expect("writing to memory does not fail");
/// let text = "# HELP jobs_total Completed jobs.\n# TYPE jobs_total counter\njobs_total 1\n";
/// assert_eq!(String::from_utf8_lossy(&out), text);
/// # Ok::<(), quipu::Error>(())
/// ```
pub struct Scrape {
    registry: Registry,
    /// Returned to the registry on drop, for the next scrape.
    buffers: Option<Box<Buffers>>,
    format: Format,
    escaping: Escaping,
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

/// The size in bytes from which a piece is full.
const PIECE: usize = 64 << 10;

impl Scrape {
    pub(crate) fn new(registry: Registry, buffers: Box<Buffers>) -> Self {
        let (format, escaping) = (Format::default(), Escaping::default());
        Self { registry, buffers: Some(buffers), format, escaping, stage: Stage::Fresh }
    }

    /// Chooses the format; the default is text 0.0.4. It has no effect after the first piece.
    pub fn format(mut self, format: Format, escaping: Escaping) -> Self {
        (self.format, self.escaping) = (format, escaping);
        self
    }

    /// The value of the `Content-Type` header for the chosen format.
    pub fn content_type(&self) -> String {
        self.format.content_type(self.escaping)
    }

    /// Returns the next piece; `None` after the last.
    pub fn next_piece(&mut self) -> Option<&[u8]> {
        let Buffers { walk, encoder } = &mut **self.buffers.as_mut()?;
        match self.stage {
            Stage::Fresh => {
                encoder.reset(self.format, self.escaping);
                // Inconsistent segments are rejected when they are opened.
                let _ = walk.begin(&self.registry);
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

    /// Writes all remaining pieces to `out`.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_to(mut self, out: &mut (impl io::Write + ?Sized)) -> io::Result<()> {
        while let Some(piece) = self.next_piece() {
            out.write_all(piece)?;
        }
        Ok(())
    }
}

impl Drop for Scrape {
    fn drop(&mut self) {
        if let Some(mut buffers) = self.buffers.take() {
            buffers.walk.end();
            self.registry.give_back(buffers);
        }
    }
}

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scrape").field("format", &self.format).finish_non_exhaustive()
    }
}
