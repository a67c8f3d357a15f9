//! Metrics with the labels of one use of a macro.

use std::fmt;
use std::time::Duration;

use crate::kind::{
    Counter, Family, Gauge, Histogram, InProgress, Instrument, IntGauge, Timer, sealed,
};
use crate::label::{ANY, LabelGroup, LabelValue, LabelWriter, Values, encode_text};
use crate::snapshot::Label;

/// A metric and the labels of one of its series: the result of a macro with labels, such as
/// [`counter!`](crate::counter). Each method finds the series, like the methods of a family.
///
/// ```
/// use quipu::counter;
///
/// for status in [200, 404] {
///     counter!("pages", "Pages.", "status" => status).inc();
/// }
/// // A bound instrument does not search for the series.
/// let found = counter!("pages", "Pages.", "status" => 200).bind();
/// found.inc();
/// assert_eq!(found.get(), 2);
/// ```
#[must_use = "call a method, such as inc"]
pub struct LabeledMetric<I: Instrument + 'static, V: LabelTexts> {
    // The macros fill in the fields. A function would end the temporary values of labels at the end
    // of a `let` statement.
    #[doc(hidden)]
    pub family: &'static Family<I, Values<'static>>,
    #[doc(hidden)]
    pub labels: TextLabels<V>,
}

impl<I: Instrument, V: LabelTexts> LabeledMetric<I, V> {
    /// Binds an instrument to the series. Keep the instrument if the labels do not change, because
    /// an update through it only costs one addition.
    pub fn bind(&self) -> I {
        self.family.bind(&self.labels)
    }
}

/// Methods that call the family's method of the same name.
macro_rules! forward {
    ($instrument:ident: $(
        $(#[$doc:meta])+
        fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;
    )+) => {
        impl<V: LabelTexts> LabeledMetric<$instrument, V> {$(
            $(#[$doc])+
            #[inline]
            pub fn $name(&self, $($argument: $type),*) $(-> $result)? {
                self.family.$name(&self.labels, $($argument),*)
            }
        )+}
    };
}

forward! { Counter:
    /// Adds one.
    fn inc();
    /// Adds `n`.
    fn inc_by(n: u64);
    /// Returns the total; `None` if there is no such series. It is not created.
    fn get() -> Option<u64>;
}

forward! { Gauge:
    /// Sets the value.
    fn set(value: f64);
    /// Adds `n`.
    fn add(n: f64);
    /// Subtracts `n`.
    fn sub(n: f64);
    /// Adds one.
    fn inc();
    /// Subtracts one.
    fn dec();
    /// Sets the value if it is greater than the current one.
    fn raise(value: f64);
    /// Adds one until you drop the guard.
    fn in_progress() -> InProgress<'static>;
    /// Returns the value; `None` if there is no such series. It is not created.
    fn get() -> Option<f64>;
}

forward! { IntGauge:
    /// Sets the value.
    fn set(value: i64);
    /// Adds `n`.
    fn add(n: i64);
    /// Subtracts `n`.
    fn sub(n: i64);
    /// Adds one.
    fn inc();
    /// Subtracts one.
    fn dec();
    /// Adds one until you drop the guard.
    fn in_progress() -> InProgress<'static>;
    /// Returns the value; `None` if there is no such series. It is not created.
    fn get() -> Option<i64>;
}

forward! { Histogram:
    /// Counts a value.
    fn observe(value: f64);
    /// Observes a duration, in seconds.
    fn observe_duration(duration: Duration);
    /// Starts a timer that observes the seconds until it is dropped.
    fn start_timer() -> Timer<'static>;
    /// Returns the number of observations; `None` if there is no such series. It is not created.
    fn count() -> Option<u64>;
    /// Returns the sum of the observations; `None` if there is no such series. It is not created.
    fn sum() -> Option<f64>;
}

impl<V: LabelTexts> LabeledMetric<Histogram, V> {
    /// Calls `work`, and observes the seconds that it takes.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        self.family.time(&self.labels, work)
    }

    /// Awaits `work`, and observes the seconds from the first poll until it is ready, or until the
    /// returned future is dropped.
    pub async fn time_future<T>(&self, work: impl Future<Output = T>) -> T {
        self.family.time_future(&self.labels, work).await
    }
}

impl<I: Instrument, V: LabelTexts> fmt::Debug for LabeledMetric<I, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LabeledMetric").field("family", self.family).finish_non_exhaustive()
    }
}

/// A list of label values, which are all written as strings: nested pairs.
pub trait LabelTexts: sealed::Sealed {
    /// Writes all values in order.
    fn write(&self, writer: &mut LabelWriter<'_>);
}

impl sealed::Sealed for () {}

impl LabelTexts for () {
    #[inline]
    fn write(&self, _: &mut LabelWriter<'_>) {}
}

impl<V: LabelValue + ?Sized, R: LabelTexts> sealed::Sealed for (&V, R) {}

impl<V: LabelValue + ?Sized, R: LabelTexts> LabelTexts for (&V, R) {
    #[inline]
    fn write(&self, writer: &mut LabelWriter<'_>) {
        let (value, rest) = self;
        encode_text(value, writer);
        rest.write(writer);
    }
}

/// The labels of a family whose label values are all strings.
#[derive(Debug)]
pub struct TextLabels<V> {
    /// The values, in the order of the labels.
    pub values: V,
}

impl<V: LabelTexts> LabelGroup for TextLabels<V> {
    type Identity = Values<'static>;
    const LABELS: &'static [Label<'static>] = &[];
    const COUNT: usize = ANY;

    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        self.values.write(writer);
    }
}
