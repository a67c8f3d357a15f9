//! One read of everything, in pieces.

use std::fmt;
use std::io;

use crate::exposition::{Encoder, Escaping, Format};
use crate::registry::Registry;
use crate::visit::Walk;

/// A scrape: it gives the text, or whatever was asked for, in pieces of about 64 KiB, and holds
/// nothing in between. A reader that is slow, or never comes back, keeps nobody waiting.
///
/// ```
/// let registry = quipu::Registry::new();
/// registry.counter("jobs", "Jobs that were done.")?.inc();
/// let mut out = Vec::new();
/// registry.scrape().write_to(&mut out).expect("a vector takes whatever fits into memory");
/// let text = "# HELP jobs_total Jobs that were done.\n# TYPE jobs_total counter\njobs_total 1\n";
/// assert_eq!(String::from_utf8_lossy(&out), text);
/// # Ok::<(), quipu::Error>(())
/// ```
pub struct Scrape {
    registry: Registry,
    /// Taken out when it is dropped, for the next scrape.
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

/// The memory of a scrape.
#[derive(Default)]
pub(crate) struct Buffers {
    walk: Walk,
    encoder: Encoder,
}

/// When a piece is full.
const PIECE: usize = 64 << 10;

impl Scrape {
    pub(crate) fn new(registry: Registry, buffers: Box<Buffers>) -> Self {
        let (format, escaping) = (Format::default(), Escaping::default());
        Self { registry, buffers: Some(buffers), format, escaping, stage: Stage::Fresh }
    }

    /// Chooses what is written; text 0.0.4 without this. It is for the beginning: later, it is
    /// without effect.
    pub fn format(mut self, format: Format, escaping: Escaping) -> Self {
        (self.format, self.escaping) = (format, escaping);
        self
    }

    /// The header `Content-Type` of what is written.
    pub fn content_type(&self) -> String {
        self.format.content_type(self.escaping)
    }

    /// The next piece; `None` when there is no more.
    pub fn next_piece(&mut self) -> Option<&[u8]> {
        let Buffers { walk, encoder } = &mut **self.buffers.as_mut()?;
        match self.stage {
            Stage::Fresh => {
                encoder.reset(self.format, self.escaping);
                // A segment that contradicts itself was refused when it was opened.
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

    /// Writes everything.
    ///
    /// # Errors
    /// The writer's.
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
