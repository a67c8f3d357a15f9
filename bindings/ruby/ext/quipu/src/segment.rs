//! `Quipu::Segment`: the metrics in a file, or in memory that forks share.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_long;
use std::sync::{Arc, Mutex, PoisonError};

use quipu::exposition::{Encoder, Escaping, Format, negotiate};
use quipu::label::Values;
use quipu::snapshot::{self, Series, Sink};
use quipu::{Description, Instrument, Registry};
use quipu_store::{SegmentOptions, SegmentStore, Store};
use rb_sys::{VALUE, rb_ary_new_capa, rb_ary_push};

use crate::ruby::{self, DataType, NIL, Raise, Wrapped, guarded, method, private_method, protect};

/// The segments of a store. Several objects may share them, each with its own registries:
/// registering or hiding a name in one does not affect the others.
pub(crate) struct Segment {
    pub(crate) store: SegmentStore,
    known: RefCell<Known>,
    warnings: Warnings,
}

/// Warnings that Ruby must still issue.
pub(crate) type Warnings = Arc<Mutex<Vec<String>>>;

static TYPE: DataType = DataType::new::<Segment>(c"Quipu::Segment");

/// The label names of all families in the stores of a [`Segment`], cached until there is a new
/// record.
#[derive(Default)]
struct Known {
    /// The newest record of each registry at the time of the read.
    newest: Vec<u64>,
    /// The label names by the part of the family's name before the `{`.
    labels: HashMap<String, Vec<Vec<String>>>,
}

impl Wrapped for Segment {
    const TYPE: &'static DataType = &TYPE;
}

/// A family whose labels are known only at run time.
pub(crate) type Family<I> = quipu::Family<I, Values<'static>>;

impl Segment {
    fn open(
        path: Option<String>,
        limit: Option<u64>,
        mode: Option<u32>,
        group: Option<u32>,
    ) -> Result<Self, Raise> {
        let warnings = Warnings::default();
        let told = Arc::clone(&warnings);
        let warn = move |warning: &str| {
            told.lock().unwrap_or_else(PoisonError::into_inner).push(warning.to_owned());
        };
        let mut options = SegmentOptions::new().on_warning(warn);
        if let Some(limit) = limit {
            options = options.max_bytes(limit);
        }
        if let Some(bits) = mode {
            options = options.mode(bits);
        }
        if let Some(group) = group {
            options = options.group(group);
        }
        let store = match path {
            Some(path) => options.open(path),
            None => options.build_anonymous(),
        };
        let store = store.map_err(Raise::store)?;
        Ok(Self::new(store, warnings))
    }

    fn new(store: SegmentStore, warnings: Warnings) -> Self {
        Self { store, known: RefCell::default(), warnings }
    }

    /// Returns the pending warnings.
    pub(crate) fn warnings(&self) -> Warnings {
        Arc::clone(&self.warnings)
    }

    /// Returns the same segment, with its own registries.
    fn view(&self) -> Self {
        Self::new(self.store.view(), Arc::clone(&self.warnings))
    }

    /// Adds the label names of each family that is named `name`, or `name` followed by its labels
    /// in braces. The cost depends on the number of families only if there is a new one.
    pub(crate) fn known(&self, name: &str, found: &mut Vec<Vec<String>>) -> Result<(), Raise> {
        let registries = self.store.registries();
        let newest: Vec<u64> = registries.iter().map(|one| one.segment().newest()).collect();
        let mut known = self.known.borrow_mut();
        if known.newest != newest {
            let mut labels: HashMap<String, Vec<Vec<String>>> = HashMap::new();
            for registry in &registries {
                for family in registry.segment().families().map_err(Raise::store)? {
                    let schema = family.schema();
                    let name = schema.name.split('{').next().unwrap_or_default();
                    let names = schema.labels.iter().map(|label| label.name.clone()).collect();
                    labels.entry(name.to_owned()).or_default().push(names);
                }
            }
            *known = Known { newest, labels };
        }
        found.extend(known.labels.get(name).into_iter().flatten().cloned());
        Ok(())
    }

    /// Registers a family; returns it with its registry. If the segment already contains a family
    /// of that name with a different description, from another program or an earlier version of
    /// this one, the existing family stays, and the new one goes to a separate segment.
    pub(crate) fn family<I: Instrument>(
        &self,
        description: Description,
    ) -> Result<(Family<I>, Registry), Raise> {
        let name = description.full_name();
        self.store.register(description).map_err(|error| match error.is_duplicate() {
            true => {
                let what = format!("{name} has already been registered");
                Raise::New(c"AlreadyRegisteredError", what)
            }
            false => Raise::store(error),
        })
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
    method!(class, c"initialize", initialize, 4);
    method!(class, c"path", path, 0);
    method!(class, c"warnings", warnings, 0);
    method!(class, c"dropped", dropped, 0);
    method!(class, c"render", render, 1);
    method!(class, c"forget", forget, 1);
    private_method!(class, c"native_view", view, 1);
    method!(class, c"reset", reset, 0);
}

/// `Segment.new(path or nil, limit in bytes or nil, permission bits or nil, group ID or nil)`
unsafe extern "C" fn initialize(
    this: VALUE,
    path: VALUE,
    limit: VALUE,
    mode: VALUE,
    group: VALUE,
) -> VALUE {
    guarded(|| {
        let path = if path == NIL { None } else { Some(ruby::text(path)?) };
        let limit = whole(limit, "the limit is not an Integer: use a number of bytes")?;
        let mode = whole(mode, "the mode is not an Integer: use permission bits")?;
        let group = whole(group, "the group is not an Integer: use a group ID")?;
        ruby::fill(this, Segment::open(path, limit, mode, group)?)?;
        Ok(this)
    })
}

/// Returns the number in an Integer; `None` for nil and for one that is out of range.
pub(crate) fn whole<N: TryFrom<c_long>>(value: VALUE, refusal: &str) -> Result<Option<N>, Raise> {
    match value {
        NIL => Ok(None),
        // SAFETY: it is a small number; others are refused.
        n if rb_sys::FIXNUM_P(n) => Ok(N::try_from(unsafe { rb_sys::FIX2LONG(n) }).ok()),
        _ => Err(Raise::New(c"TypeError", refusal.into())),
    }
}

unsafe extern "C" fn path(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let this: &Segment = unsafe { ruby::value(this) };
    guarded(|| match this.store.path() {
        Some(path) => {
            let path = path.to_string_lossy();
            protect(|| ruby::string(&path))
        }
        None => Ok(NIL),
    })
}

/// Returns the pending warnings, each only once.
unsafe extern "C" fn warnings(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let this: &Segment = unsafe { ruby::value(this) };
    guarded(|| {
        let mut warnings = this.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        let warnings = std::mem::take(&mut *warnings);
        protect(|| ruby::array(&warnings, |warning| ruby::string(warning)))
    })
}

/// Returns the number of updates that were lost or counted without their labels.
unsafe extern "C" fn dropped(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let this: &Segment = unsafe { ruby::value(this) };
    guarded(|| {
        let dropped = this.store.dropped();
        // SAFETY: it returns a number.
        protect(|| unsafe { rb_sys::rb_ull2inum(dropped) })
    })
}

/// `render("text", "openmetrics", "protobuf", or an Accept header)` returns the content type and
/// the body.
unsafe extern "C" fn render(this: VALUE, accept: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
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
        // Warns if a family overflowed.
        this.store.scrape_registry();
        let registries = this.store.registries();
        let body = ruby::without_gvl(move || {
            let mut page = Page(Encoder::new(format, escaping));
            for registry in registries {
                registry.visit(&mut page)?;
            }
            page.0.finish();
            Ok::<_, quipu::Error>(std::mem::take(page.0.buffer_mut()))
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

/// An encoder that also writes the headers of families without series.
struct Page(Encoder);

impl Sink for Page {
    fn family(&mut self, family: &snapshot::FamilyHeader<'_>) {
        self.0.family(family);
        self.0.header(family);
    }

    fn series(&mut self, family: &snapshot::FamilyHeader<'_>, series: &Series<'_>) {
        self.0.series(family, series);
    }
}

/// `native_view(other)`: initializes this object on the same segment, with its own registries.
unsafe extern "C" fn view(this: VALUE, other: VALUE) -> VALUE {
    // SAFETY: the argument lives; the frame holds only plain data.
    let other: &Segment = unsafe { ruby::value(other) };
    guarded(|| {
        ruby::fill(this, other.view())?;
        Ok(this)
    })
}

/// Resets all metrics to zero.
unsafe extern "C" fn reset(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let this: &Segment = unsafe { ruby::value(this) };
    guarded(|| {
        for registry in this.store.registries() {
            registry.reset().map_err(Raise::store)?;
        }
        Ok(NIL)
    })
}

/// Frees the name of a family in this registry; returns whether it was in use.
unsafe extern "C" fn forget(this: VALUE, name: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let this: &Segment = unsafe { ruby::value(this) };
    guarded(|| {
        let name = ruby::text(name)?;
        let freed =
            this.store.registries().iter().filter(|registry| registry.unregister(&name)).count();
        let was_taken = freed > 0;
        Ok(if was_taken { ruby::TRUE } else { ruby::FALSE })
    })
}
