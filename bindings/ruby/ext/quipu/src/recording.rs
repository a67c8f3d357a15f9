//! `Quipu::Recording`: the flight recorder of a segment. Its thread belongs to the library: this
//! thread never runs Ruby code, and never waits for the GVL.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rb_sys::VALUE;

use crate::number;
use crate::ruby::{self, DataType, NIL, Raise, Wrapped, guarded, method, private_method};
use crate::segment::{Segment, Warnings, whole};

struct Recording {
    options: quipu::RecordingOptions,
    /// None before the recording starts, and once it is closed. This mutex is locked only while
    /// holding the GVL, because the forking thread holds the GVL, too.
    running: Mutex<Option<Running>>,
}

struct Running {
    recording: quipu::Recording,
    /// The warnings of the segment.
    warnings: Warnings,
}

static TYPE: DataType = DataType::new::<Recording>(c"Quipu::Recording");

impl Wrapped for Recording {
    const TYPE: &'static DataType = &TYPE;
}

impl Recording {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn define() {
    // SAFETY: the class is a new one, with objects that `allocate` makes.
    let class = unsafe {
        let class = rb_sys::rb_define_class_under(
            ruby::module(),
            c"Recording".as_ptr(),
            rb_sys::rb_cObject,
        );
        rb_sys::rb_define_alloc_func(class, Some(ruby::allocate::<Recording>));
        class
    };
    private_method!(class, c"native_set", set, 4);
    private_method!(class, c"native_start", start, 1);
    private_method!(class, c"native_resume", resume, 0);
    private_method!(class, c"native_close", close, 0);
    method!(class, c"writing?", is_writing, 0);
}

fn refused(error: impl std::fmt::Display) -> Raise {
    Raise::New(c"RecordingError", error.to_string())
}

/// `native_set(interval in seconds, bytes, series, names of families)`
unsafe extern "C" fn set(
    this: VALUE,
    interval: VALUE,
    bytes: VALUE,
    series: VALUE,
    families: VALUE,
) -> VALUE {
    // SAFETY: it may raise; the frame holds only plain data.
    let interval = unsafe { number::float(interval) };
    guarded(|| {
        let bytes = whole(bytes, "bytes is not an Integer: use a number of bytes")?;
        let series = whole(series, "series is not an Integer: use a number of series")?;
        let interval = Duration::try_from_secs_f64(interval).map_err(|_| {
            refused(format!(
                "an interval of {interval} seconds for the flight recorder is out of range: use \
                 0.001 to 3600"
            ))
        })?;
        let options = quipu::RecordingOptions::new()
            .interval(interval)
            .max_bytes(bytes.unwrap_or_default())
            .max_series(series.unwrap_or_default())
            .families(ruby::texts(families)?);
        options.check().map_err(refused)?;
        ruby::fill(this, Recording { options, running: Mutex::new(None) })?;
        Ok(this)
    })
}

/// `native_start(segment)` starts the thread.
unsafe extern "C" fn start(this: VALUE, segment: VALUE) -> VALUE {
    // SAFETY: the receiver and the argument live; the frame holds only plain data.
    let (this, segment): (&Recording, &Segment) =
        unsafe { (ruby::value(this), ruby::value(segment)) };
    guarded(|| {
        let (registry, options) = (segment.store.scrape_registry().clone(), this.options.clone());
        // Without the GVL, because another process can hold the lock under which the recorder is
        // made.
        let recording = ruby::without_gvl(move || registry.record(&options))?.map_err(refused)?;
        *this.running() = Some(Running { recording, warnings: segment.warnings() });
        Ok(NIL)
    })
}

/// Starts the thread again in a child of a fork. This neither raises nor calls Ruby, because the
/// interpreter may not have finished the fork yet.
unsafe extern "C" fn resume(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let this: &Recording = unsafe { ruby::value(this) };
    guarded(|| {
        if let Some(Running { recording, warnings }) = &mut *this.running()
            && let Err(error) = recording.resume()
        {
            let mut warnings = warnings.lock().unwrap_or_else(PoisonError::into_inner);
            warnings.push(format!("{error}; this process does not record"));
        }
        Ok(NIL)
    })
}

/// Ends the thread permanently.
unsafe extern "C" fn close(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let this: &Recording = unsafe { ruby::value(this) };
    guarded(|| {
        let recording = this.running().take();
        // Without the GVL, because the thread ends only after its tick.
        ruby::without_gvl(move || drop(recording))?;
        Ok(NIL)
    })
}

/// Whether this process writes, and not another one that shares the file.
unsafe extern "C" fn is_writing(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let this: &Recording = unsafe { ruby::value(this) };
    let is_writing = this.running().as_ref().is_some_and(|running| running.recording.is_writing());
    if is_writing { ruby::TRUE } else { ruby::FALSE }
}
