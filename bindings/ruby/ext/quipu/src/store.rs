//! `Quipu::DataStore::MetricStore`: a metric with the interface of client_ruby's stores.
//!
//! A store learns the label names of a metric from the first Hash that it gets. Later ones nearly
//! always contain the same names, so a usual metric needs only one set of names. Others are added
//! next to it.

use std::cell::UnsafeCell;
use std::sync::Arc;

use quipu_store::{Kind, Metric, Spec, Store};
use rb_sys::{VALUE, rb_ary_new_capa, rb_ary_push};

use crate::labels::{Key, Labels};
use crate::number;
use crate::ruby::{self, DataType, NIL, Raise, Wrapped, guarded, private_method, protect};
use crate::segment::Segment;

struct MetricStore {
    /// The Ruby object of the segment.
    segment: VALUE,
    spec: Spec,
    /// The sets of names. A set is added while holding the GVL, and stays in place until the object
    /// is freed.
    #[expect(clippy::vec_box, reason = "a reference outlives a push")]
    sets: UnsafeCell<Vec<Box<Set>>>,
}

/// The series that share their label names.
struct Set {
    labels: Labels,
    metric: Arc<dyn Metric>,
}

static TYPE: DataType = DataType::new::<MetricStore>(c"Quipu::DataStore::MetricStore");

impl Wrapped for MetricStore {
    const TYPE: &'static DataType = &TYPE;

    fn mark(&self) {
        ruby::mark(self.segment);
        self.sets().iter().for_each(|set| set.labels.mark());
    }
}

impl MetricStore {
    fn sets(&self) -> &[Box<Set>] {
        // SAFETY: only `add` changes it, while it holds the GVL and does not call Ruby.
        unsafe { &*self.sets.get() }
    }

    fn add(&self, labels: Labels) -> Result<(), Raise> {
        // SAFETY: the object is marked, so it lives; `open` checked that it is a segment.
        let segment: &Segment = unsafe { ruby::value(self.segment) };
        let names = labels.names()?;
        let mut spec = self.spec.clone().labels(&names);
        let metric = segment.store.metric(&spec).or_else(|_| {
            // The name exists with other labels: add the label names to the name.
            spec.name = format!("{}{{{}}}", self.spec.name, names.join(","));
            segment.store.metric(&spec)
        });
        let metric = metric.map_err(Raise::store)?;
        // SAFETY: no reference to the vector exists: see `sets`.
        unsafe { (*self.sets.get()).push(Box::new(Set { labels, metric })) };
        Ok(())
    }

    /// Finds the set with the names in a Hash, and reads the values into the key. This may raise;
    /// so the caller's frame must hold only plain data.
    ///
    /// # Safety
    /// The caller must not call Ruby while the key lives.
    #[inline(always)]
    unsafe fn find<'a>(&'a self, this: VALUE, labels: VALUE, key: &mut Key<'a>) -> &'a Set {
        for _ in 0..2 {
            // By index, because converting a value can run Ruby code that adds a set.
            let mut index = 0;
            while let Some(set) = self.sets().get(index) {
                // SAFETY: guaranteed by the caller; the box stays where it is.
                let set: &'a Set = unsafe { &*std::ptr::from_ref::<Set>(set) };
                // SAFETY: as above.
                if unsafe { set.labels.matches(labels, key) } {
                    return set;
                }
                index += 1;
            }
            let arguments = [labels];
            // SAFETY: the method of the Ruby part raises, or adds a set with these names.
            unsafe { rb_sys::rb_funcallv(this, ruby::id(c"declare"), 1, arguments.as_ptr()) };
        }
        guarded(|| Err(Raise::New(c"InvalidLabelSetError", "cannot store this label set".into())));
        unreachable!("the line above raises")
    }
}

pub(crate) fn define() {
    // SAFETY: the classes are new ones, with objects that `allocate` makes.
    let class = unsafe {
        let store = rb_sys::rb_define_class_under(
            ruby::module(),
            c"DataStore".as_ptr(),
            rb_sys::rb_cObject,
        );
        let name = c"MetricStore".as_ptr();
        let class = rb_sys::rb_define_class_under(store, name, rb_sys::rb_cObject);
        rb_sys::rb_define_alloc_func(class, Some(ruby::allocate::<MetricStore>));
        class
    };
    private_method!(class, c"native_open", open, 4);
    private_method!(class, c"native_declare", declare, 1);
    private_method!(class, c"native_known", known, 0);
    private_method!(class, c"native_increment", increment, 2);
    private_method!(class, c"native_set", set, 2);
    private_method!(class, c"native_get", get, 1);
    private_method!(class, c"native_values", values, 0);
}

/// `native_open(segment, name, type, aggregation)`
unsafe extern "C" fn open(
    this: VALUE,
    segment: VALUE,
    name: VALUE,
    kind: VALUE,
    aggregation: VALUE,
) -> VALUE {
    guarded(|| {
        // SAFETY: it returns the segment or raises.
        protect(|| unsafe { std::ptr::from_ref::<Segment>(ruby::value(segment)) as VALUE })?;
        let kind = match ruby::text(kind)?.as_str() {
            "counter" => Kind::Counter,
            "gauge" => Kind::Gauge,
            "histogram" => Kind::Histogram,
            "summary" => Kind::Summary,
            other => return Err(Raise::argument(format!("unknown metric type {other}"))),
        };
        let aggregation = ruby::text(aggregation)?.parse();
        let refuse = |error| Raise::New(c"InvalidStoreSettingsError", format!("{error}"));
        let spec = Spec::new(ruby::text(name)?, kind).aggregation(aggregation.map_err(refuse)?);
        ruby::fill(this, MetricStore { segment, spec, sets: UnsafeCell::default() })?;
        Ok(this)
    })
}

/// `native_declare([symbols])`: adds a set of names.
unsafe extern "C" fn declare(this: VALUE, names: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let store: &MetricStore = unsafe { ruby::value(this) };
    guarded(|| {
        let names = ruby::list(names)?;
        store.add(Labels::without_presets(&names)?)?;
        Ok(NIL)
    })
}

/// Returns the sets of names, as arrays of strings, that other processes added: they are in the
/// segment, but not in this store.
unsafe extern "C" fn known(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let store: &MetricStore = unsafe { ruby::value(this) };
    guarded(|| {
        // SAFETY: as in `add`.
        let segment: &Segment = unsafe { ruby::value(store.segment) };
        let name = &store.spec.name;
        let mut found: Vec<Vec<String>> = Vec::new();
        segment.known(name, &mut found)?;
        if let Some(short) = name.strip_suffix("_total") {
            segment.known(short, &mut found)?;
        }
        found.iter_mut().for_each(|names| names.retain(|name| !is_process(name)));
        let ours: Result<Vec<_>, _> = store.sets().iter().map(|set| set.labels.names()).collect();
        let ours = ours?;
        found.retain(|names| !ours.contains(names));
        protect(|| ruby::array(&found, |names| ruby::array(names, |name| ruby::string(name))))
    })
}

/// Returns whether this label identifies the process of a value in a segment.
fn is_process(label: &str) -> bool {
    matches!(label, "pid" | "quipu_process")
}

/// `native_increment(labels, by)`
unsafe extern "C" fn increment(this: VALUE, labels: VALUE, by: VALUE) -> VALUE {
    // SAFETY: receiver and arguments live; the frame holds only plain data.
    unsafe {
        let store: &MetricStore = ruby::value(this);
        let by = number::float(by);
        let mut key = Key::new();
        let set = store.find(this, labels, &mut key);
        key.with_texts(|labels| set.metric.add(labels, by));
    }
    NIL
}

/// `native_set(labels, value)`
unsafe extern "C" fn set(this: VALUE, labels: VALUE, value: VALUE) -> VALUE {
    // SAFETY: as above.
    unsafe {
        let store: &MetricStore = ruby::value(this);
        let value = number::float(value);
        let mut key = Key::new();
        let set = store.find(this, labels, &mut key);
        key.with_texts(|labels| set.metric.set(labels, value));
    }
    NIL
}

/// `native_get(labels)`
unsafe extern "C" fn get(this: VALUE, labels: VALUE) -> VALUE {
    // SAFETY: as above.
    unsafe {
        let store: &MetricStore = ruby::value(this);
        let mut key = Key::new();
        let set = store.find(this, labels, &mut key);
        ruby::float(key.with_texts(|labels| set.metric.get(labels)).unwrap_or(0.0))
    }
}

/// Returns, for each set, its names as strings, and its series: label values and value.
unsafe extern "C" fn values(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let store: &MetricStore = unsafe { ruby::value(this) };
    guarded(|| {
        let mut sets = Vec::new();
        for set in store.sets() {
            let mut rows: Vec<(Vec<String>, f64)> = Vec::new();
            let mut visit = |labels: &[&str], value: f64| {
                rows.push((labels.iter().map(|&label| label.to_owned()).collect(), value));
            };
            set.metric.for_each(&mut visit).map_err(Raise::store)?;
            sets.push((set.labels.names()?, rows));
        }
        let row = |(labels, value): &(Vec<String>, f64)| {
            pair(ruby::array(labels, |label| ruby::string(label)), || ruby::float(*value))
        };
        protect(|| {
            ruby::array(&sets, |(names, rows)| {
                pair(ruby::array(names, |name| ruby::string(name)), || ruby::array(rows, row))
            })
        })
    })
}

/// Makes an array of two. It may raise: call it in `protect`.
fn pair(first: VALUE, second: impl Fn() -> VALUE) -> VALUE {
    // SAFETY: the array is on the stack, where Ruby finds it, and `first` is in it before the next
    // object is made.
    unsafe {
        let pair = rb_ary_new_capa(2);
        rb_ary_push(pair, first);
        rb_ary_push(pair, second());
        pair
    }
}
