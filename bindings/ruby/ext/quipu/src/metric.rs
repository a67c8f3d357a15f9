//! The common part of all metrics: the family, the labels, and the series if all labels are preset.

use std::ffi::{CStr, c_int};

use quipu::label::Values;
use quipu::snapshot::{self, CounterValue, Series, Sink, SummaryValue, Value};
use quipu::{Description, Instrument, Registry};
use rb_sys::{VALUE, rb_ary_new_capa, rb_ary_push};

use crate::labels::{Key, Labels};
use crate::memo::Memo;
use crate::ruby::{self, DataType, NIL, Raise, Wrapped, guarded, method, private_method, protect};
use crate::segment::{Family, Segment};

/// A metric of one instrument, or a view of it with values for some labels.
pub(crate) struct Metric<I: Instrument> {
    pub(crate) family: Family<I>,
    pub(crate) labels: Labels,
    /// The series, if there is a value for each label.
    pub(crate) bound: Option<I>,
    memo: Memo,
    registry: Registry,
    name: String,
}

/// An instrument with a class in Ruby.
pub(crate) trait Class: Instrument + Clone + 'static {
    const TYPE: &'static DataType;

    /// Adds the kind-specific settings, in the order of the Ruby part's arguments.
    fn describe(description: Description, settings: &[VALUE]) -> Result<Description, Raise>;
}

impl<I: Class> Wrapped for Metric<I> {
    const TYPE: &'static DataType = I::TYPE;

    fn mark(&self) {
        self.labels.mark();
        self.memo.mark();
    }
}

impl<I: Class> Metric<I> {
    fn bound(family: &Family<I>, labels: &Labels) -> Option<I> {
        Some(family.bind(&Values(&labels.preset()?)))
    }

    /// Calls `one` with the series if it is already known, otherwise `any` with the values of the
    /// labels. This may raise before the call; so the caller's frame must hold only plain data.
    ///
    /// # Safety
    /// `one` and `any` must not call Ruby.
    #[inline(always)]
    pub(crate) unsafe fn count<'a>(
        &'a self,
        metric: VALUE,
        labels: VALUE,
        one: impl FnOnce(&I),
        any: impl FnOnce(&Family<I>, &Key<'a>),
    ) {
        match &self.bound {
            Some(bound) if labels == NIL => one(bound),
            _ => {
                let mut key = Key::new();
                // SAFETY: guaranteed by the caller.
                unsafe { self.labels.find(metric, labels, &self.memo, &mut key) };
                any(&self.family, &key);
            }
        }
    }
}

/// Defines a class and the methods that all metrics share.
pub(crate) fn define<I: Class>(name: &CStr) -> VALUE {
    // SAFETY: the classes are new ones, with objects that `allocate` makes.
    let class = unsafe {
        let metric =
            rb_sys::rb_define_class_under(ruby::module(), c"Metric".as_ptr(), rb_sys::rb_cObject);
        let class = rb_sys::rb_define_class_under(ruby::module(), name.as_ptr(), metric);
        rb_sys::rb_define_alloc_func(class, Some(ruby::allocate::<Metric<I>>));
        class
    };
    private_method!(class, c"native_open", open::<I>, -1);
    private_method!(class, c"native_view", view::<I>, 3);
    private_method!(class, c"native_series", series::<I>, 0);
    private_method!(class, c"native_remove", remove::<I>, 1);
    private_method!(class, c"native_init", init::<I>, 1);
    method!(class, c"clear", clear::<I>, 0);
    class
}

/// Defines the class of the child that `with_labels` returns for a full set of values.
pub(crate) fn define_child(class: VALUE) -> VALUE {
    // SAFETY: it is a new class, which allocates like its parent.
    unsafe { rb_sys::rb_define_class_under(class, c"Child".as_ptr(), class) }
}

/// Returns the value of a keyword, if this is the only argument.
///
/// # Safety
/// You must pass the arguments of the current call.
#[inline(always)]
pub(crate) unsafe fn only_keyword(
    keyword: VALUE,
    count: c_int,
    arguments: *const VALUE,
) -> Option<VALUE> {
    // SAFETY: guaranteed by the caller. Keywords come as a Hash.
    unsafe {
        if count != 1 || rb_sys::rb_keyword_given_p() == 0 {
            return None;
        }
        let keywords = *arguments;
        let undefined = rb_sys::Qundef as VALUE;
        let value = rb_sys::rb_hash_lookup2(keywords, keyword, undefined);
        (value != undefined && rb_sys::rb_hash_size_num(keywords) == 1).then_some(value)
    }
}

/// Calls a method of the Ruby part with the same arguments. This may raise; so the caller's frame
/// must hold only plain data.
///
/// # Safety
/// You must pass the arguments of the current call.
#[cold]
pub(crate) unsafe fn general(
    this: VALUE,
    name: &CStr,
    count: c_int,
    arguments: *const VALUE,
) -> VALUE {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let has_keywords = c_int::from(rb_sys::rb_keyword_given_p() != 0);
        rb_sys::rb_funcallv_kw(this, ruby::id(name), count, arguments, has_keywords)
    }
}

/// Returns the labels of an exemplar, from alternating names and values.
pub(crate) fn pairs(texts: &[String]) -> Vec<(&str, &str)> {
    texts.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect()
}

/// `native_open(segment, name, help, label names, preset values, *settings)`
unsafe extern "C" fn open<I: Class>(count: c_int, arguments: *const VALUE, this: VALUE) -> VALUE {
    guarded(|| {
        // SAFETY: Ruby passes `count` arguments.
        let arguments = unsafe {
            std::slice::from_raw_parts(arguments, usize::try_from(count).unwrap_or_default())
        };
        let [segment, name, help, names, presets, settings @ ..] = arguments else {
            return Err(Raise::argument("too few arguments"));
        };
        let (name, help, segment) = (ruby::text(*name)?, ruby::text(*help)?, *segment);
        let labels = Labels::new(*names, *presets)?;
        let description = Description::new(&name, help).labels(labels.names()?).verbatim();
        let description = <I as Class>::describe(description, settings)?;
        let pointer = protect(|| {
            // SAFETY: the segment is an argument, and lives.
            let segment: &Segment = unsafe { ruby::value(segment) };
            std::ptr::from_ref(segment) as VALUE
        })?;
        // SAFETY: as above.
        let segment = unsafe { &*(pointer as *const Segment) };
        let (family, registry) = segment.family::<I>(description)?;
        let (bound, memo) = (Metric::bound(&family, &labels), Memo::default());
        ruby::fill(this, Metric { family, labels, bound, memo, registry, name })?;
        Ok(this)
    })
}

/// `native_view(metric, label names, preset values)`: the same metric with values for labels.
unsafe extern "C" fn view<I: Class>(
    this: VALUE,
    metric: VALUE,
    names: VALUE,
    presets: VALUE,
) -> VALUE {
    // SAFETY: the argument lives; the frame holds only plain data.
    let metric: &Metric<I> = unsafe { ruby::value(metric) };
    guarded(|| {
        let labels = Labels::new(names, presets)?;
        let (family, registry) = (metric.family.clone(), metric.registry.clone());
        let (bound, memo) = (Metric::bound(&family, &labels), Memo::default());
        let name = metric.name.clone();
        ruby::fill(this, Metric { family, labels, bound, memo, registry, name })?;
        Ok(this)
    })
}

/// Removes the series with these labels; returns whether there was one.
unsafe extern "C" fn remove<I: Class>(this: VALUE, labels: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame and the key hold only plain data.
    unsafe {
        let metric: &Metric<I> = ruby::value(this);
        let mut key = Key::new();
        metric.labels.read(this, labels, &mut key);
        let removed = metric.family.remove(&key);
        guarded(|| {
            let was_there = removed.map_err(Raise::store)?;
            Ok(if was_there { ruby::TRUE } else { ruby::FALSE })
        })
    }
}

/// Creates the series with these labels, at zero.
unsafe extern "C" fn init<I: Class>(this: VALUE, labels: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame and the key hold only plain data.
    unsafe {
        let metric: &Metric<I> = ruby::value(this);
        let mut key = Key::new();
        metric.labels.read(this, labels, &mut key);
        drop(metric.family.bind(&key));
    }
    NIL
}

/// Removes all series; returns their number.
unsafe extern "C" fn clear<I: Class>(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let metric: &Metric<I> = unsafe { ruby::value(this) };
    guarded(|| {
        let removed = metric.family.clear().map_err(Raise::store)?;
        // SAFETY: it returns a number.
        protect(|| unsafe { rb_sys::rb_ull2inum(removed) })
    })
}

/// Returns the names of the labels, and for each series a pair of its label values and its numbers.
/// The label values of the overflow series are `nil`.
unsafe extern "C" fn series<I: Class>(this: VALUE) -> VALUE {
    // SAFETY: the receiver lives; the frame holds only plain data.
    let metric: &Metric<I> = unsafe { ruby::value(this) };
    guarded(|| {
        let mut rows = Rows::default();
        metric.registry.visit_family(&metric.name, &mut rows).map_err(Raise::store)?;
        rows.to_ruby()
    })
}

/// The series of a family.
#[derive(Default)]
pub(crate) struct Rows {
    names: Vec<String>,
    rows: Vec<Row>,
    /// The number of families so far. The metric is the first; the others are variants of its name.
    families: u32,
}

struct Row {
    labels: Option<Vec<String>>,
    numbers: Vec<f64>,
}

impl Rows {
    fn to_ruby(&self) -> Result<VALUE, Raise> {
        let row = |row: &Row| {
            // SAFETY: the array is on the stack, where Ruby finds it.
            unsafe {
                let pair = rb_ary_new_capa(2);
                rb_ary_push(
                    pair,
                    match &row.labels {
                        Some(labels) => ruby::array(labels, |label| ruby::string(label)),
                        None => NIL,
                    },
                );
                rb_ary_push(pair, ruby::array(&row.numbers, |n| ruby::float(*n)));
                pair
            }
        };
        protect(|| {
            // SAFETY: as above.
            unsafe {
                let answer = rb_ary_new_capa(2);
                rb_ary_push(answer, ruby::array(&self.names, |name| ruby::string(name)));
                rb_ary_push(answer, ruby::array(&self.rows, row));
                answer
            }
        })
    }
}

impl Sink for Rows {
    fn family(&mut self, family: &snapshot::FamilyHeader<'_>) {
        self.families += 1;
        if self.families == 1 {
            self.names = family.dynamic().map(str::to_owned).collect();
        }
    }

    fn series(&mut self, _: &snapshot::FamilyHeader<'_>, series: &Series<'_>) {
        if self.families > 1 {
            return;
        }
        let numbers = match series.value {
            Value::Counter(CounterValue { total: n, .. }) | Value::Gauge(n) | Value::Unknown(n) => {
                vec![n.as_f64()]
            }
            Value::Histogram(histogram) => {
                let mut count = 0_u64;
                let buckets = histogram.buckets.iter().map(|bucket| {
                    count = count.wrapping_add(bucket.count);
                    count as f64
                });
                std::iter::once(histogram.sum).chain(buckets).collect()
            }
            Value::Summary(SummaryValue { quantiles, count, sum, .. }) => {
                let quantiles = quantiles.iter().map(|(_, value)| *value);
                [count as f64, sum].into_iter().chain(quantiles).collect()
            }
            Value::StateSet(states) => states.iter().map(|(_, on)| f64::from(*on)).collect(),
            _ => vec![1.0],
        };
        let labels = (!series.overflow).then(|| series.texts.map(str::to_owned).collect());
        self.rows.push(Row { labels, numbers });
    }
}
