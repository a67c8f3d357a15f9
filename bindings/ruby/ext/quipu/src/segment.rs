//! `Quipu::Segment`: where metrics lie, in a file or in memory that forks share.

use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use quipu::exposition::{Encoder, Escaping, Format, negotiate};
use quipu::label::Values;
use quipu::{Description, Instrument, Registry};
use quipu_store::{SegmentOptions, SegmentStore, Store};
use rb_sys::{VALUE, rb_ary_new_capa, rb_ary_push};

use crate::ruby::{self, DataType, NIL, Raise, Wrapped, guarded, method, protect};

/// A segment, and those beside it of metrics that another program describes differently there.
pub(crate) struct Segment {
    pub(crate) store: SegmentStore,
    /// What has metrics that another program describes differently in `store`.
    others: RefCell<Vec<SegmentStore>>,
    options: SegmentOptions,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Wrapped for Segment {
    const TYPE: &'static DataType = &DataType::new::<Self>(c"Quipu::Segment");
}

/// How many descriptions of one name are kept beside the first.
const MOST_OTHERS: usize = 9;

/// A family whose labels are known at run time only.
pub(crate) type Family<I> = quipu::Family<I, Values<'static>>;

impl Segment {
    fn open(path: Option<String>, limit: Option<u64>) -> Result<Self, Raise> {
        let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&warnings);
        let warn = move |warning: &str| {
            told.lock().unwrap_or_else(PoisonError::into_inner).push(warning.to_owned());
        };
        let mut options = SegmentOptions::new().warn(warn);
        if let Some(limit) = limit {
            options = options.limit(limit);
        }
        let store = match path {
            Some(path) => options.open(path),
            None => options.anonymous(),
        };
        let store = store.map_err(Raise::store)?;
        Ok(Self { store, others: RefCell::default(), options, warnings })
    }

    pub(crate) fn registry(&self) -> &Registry {
        self.store.registry()
    }

    /// All registries.
    fn registries(&self) -> Vec<Registry> {
        let others = self.others.borrow();
        std::iter::once(&self.store).chain(&*others).flat_map(SegmentStore::registries).collect()
    }

    /// Registers a family, and answers in which registry. What the segment has of that name and
    /// differs, since another program made it or an earlier version of this one, stays; the family
    /// is kept apart from it, in a segment beside it.
    pub(crate) fn family<I: Instrument>(
        &self,
        description: Description,
    ) -> Result<(Family<I>, Registry), Raise> {
        let name = description.full_name();
        let mut why = None;
        for number in 0..=MOST_OTHERS {
            let registry = self.registry_of(number)?;
            match registry.register(description.clone()) {
                Ok(family) => {
                    if let Some(why) = why {
                        let place = registry.segment().path();
                        let place = place.map_or_else(|| "memory".into(), Path::to_string_lossy);
                        self.warn(format!("{why}; it is kept apart, in {place}"));
                    }
                    return Ok((family, registry));
                }
                Err(error) if error.is_duplicate() => {
                    let what = format!("{name} has already been registered");
                    return Err(Raise::New(c"AlreadyRegisteredError", what));
                }
                Err(error) if error.is_mismatch() => why = Some(error),
                Err(error) => return Err(Raise::store(error)),
            }
        }
        Err(Raise::store(format!(
            "{name} is described differently by too many programs in one directory; give each its \
             own, or remove the files while none runs"
        )))
    }

    /// The registry of that number, made where it is not there yet.
    fn registry_of(&self, number: usize) -> Result<Registry, Raise> {
        let Some(index) = number.checked_sub(1) else { return Ok(self.registry().clone()) };
        let mut others = self.others.borrow_mut();
        if others.len() <= index {
            let store = match self.store.path() {
                Some(path) => {
                    self.options.open(path.with_extension(format!("other{number}.quipu")))
                }
                None => self.options.anonymous(),
            };
            others.push(store.map_err(Raise::store)?);
        }
        Ok(others[index].registry().clone())
    }

    fn warn(&self, warning: String) {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(warning);
    }
}

pub(crate) fn define() {
    // SAFETY: the class is a new one, with objects that `allocate` makes.
    let class = unsafe {
        let class =
            rb_sys::rb_define_class_under(ruby::module(), c"Segment".as_ptr(), rb_sys::rb_cObject);
        rb_sys::rb_define_alloc_func(class, Some(ruby::allocate::<Segment>));
        class
    };
    method!(class, c"initialize", initialize, 2);
    method!(class, c"path", path, 0);
    method!(class, c"warnings", warnings, 0);
    method!(class, c"dropped", dropped, 0);
    method!(class, c"render", render, 1);
    method!(class, c"forget", forget, 1);
}

/// `Segment.new(path or nil, limit in bytes or nil)`
unsafe extern "C" fn initialize(this: VALUE, path: VALUE, limit: VALUE) -> VALUE {
    guarded(|| {
        let path = if path == NIL { None } else { Some(ruby::text(path)?) };
        let limit = match limit {
            NIL => None,
            // SAFETY: it is a small number; others are refused.
            n if rb_sys::FIXNUM_P(n) => u64::try_from(unsafe { rb_sys::FIX2LONG(n) }).ok(),
            _ => return Err(Raise::New(c"TypeError", "the limit is no number of bytes".into())),
        };
        ruby::fill(this, Segment::open(path, limit)?)?;
        Ok(this)
    })
}

unsafe extern "C" fn path(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame has plain data only.
    let this: &Segment = unsafe { ruby::value(this) };
    guarded(|| match this.store.path() {
        Some(path) => {
            let path = path.to_string_lossy();
            protect(|| ruby::string(&path))
        }
        None => Ok(NIL),
    })
}

/// What there is to warn of, each once.
unsafe extern "C" fn warnings(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame has plain data only.
    let this: &Segment = unsafe { ruby::value(this) };
    guarded(|| {
        let mut warnings = this.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        let warnings = std::mem::take(&mut *warnings);
        protect(|| ruby::array(&warnings, |warning| ruby::string(warning)))
    })
}

/// How many updates could not be kept as they were meant.
unsafe extern "C" fn dropped(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame has plain data only.
    let this: &Segment = unsafe { ruby::value(this) };
    guarded(|| {
        let dropped = this.store.dropped();
        // SAFETY: it answers a number.
        protect(|| unsafe { rb_sys::rb_ull2inum(dropped) })
    })
}

/// `render("text", "openmetrics", "protobuf", or a header Accept)` answers the content type and the
/// body.
unsafe extern "C" fn render(this: VALUE, accept: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame has plain data only.
    let this: &Segment = unsafe { ruby::value(this) };
    guarded(|| {
        let (format, escaping) = match ruby::text(accept)?.as_str() {
            "text" => (Format::Text, Escaping::default()),
            "openmetrics" => (Format::OpenMetrics, Escaping::default()),
            "protobuf" => (Format::Protobuf, Escaping::default()),
            accept => {
                let negotiated = negotiate(accept);
                (negotiated.format, negotiated.escaping)
            }
        };
        let kind = format.content_type(escaping);
        let registries = this.registries();
        let body = ruby::without_lock(move || {
            let mut encoder = Encoder::default();
            encoder.reset(format, escaping);
            for registry in registries {
                registry.visit(&mut encoder)?;
            }
            encoder.finish();
            Ok::<_, quipu::Error>(std::mem::take(encoder.buffer_mut()))
        })?;
        let body = body.map_err(Raise::store)?;
        let is_text = format != Format::Protobuf;
        protect(|| {
            // SAFETY: the array is on the stack, where Ruby finds it; the body is copied.
            unsafe {
                let answer = rb_ary_new_capa(2);
                rb_ary_push(answer, ruby::string(&kind));
                let (start, length) = (body.as_ptr().cast(), body.len().try_into().unwrap_or(0));
                rb_ary_push(
                    answer,
                    match is_text {
                        true => rb_sys::rb_utf8_str_new(start, length),
                        false => rb_sys::rb_str_new(start, length),
                    },
                );
                answer
            }
        })
    })
}

/// Frees the name of a family for this process, whether it was taken.
unsafe extern "C" fn forget(this: VALUE, name: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame has plain data only.
    let this: &Segment = unsafe { ruby::value(this) };
    guarded(|| {
        let name = ruby::text(name)?;
        let freed = this.registries().iter().filter(|registry| registry.unregister(&name)).count();
        let was_taken = freed > 0;
        Ok(if was_taken { ruby::TRUE } else { ruby::FALSE })
    })
}
