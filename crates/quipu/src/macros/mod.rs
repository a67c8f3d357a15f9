//! Macros that count in the global registry, so you need not pass a handle around:
//! [`counter!`](crate::counter), [`gauge!`](crate::gauge), [`int_gauge!`](crate::int_gauge) and
//! [`histogram!`](crate::histogram).
//!
//! Each use of a macro in your code creates a static handle of a metric. The metric is registered
//! when the program first reaches the macro. From then on, an update loads the handle and counts.

mod labeled_metric;
mod lazy_metric;
mod registration_errors;

pub use labeled_metric::{LabelTexts, LabeledMetric, TextLabels};
pub use lazy_metric::LazyMetric;

/// `counter!(name, help [, setting = value]* [, "label" => value]*)`
///
/// Returns a counter of [`Registry::global`](crate::Registry::global), which is registered when the
/// program first reaches the macro.
///
/// The arguments are the name and the help, then settings, then labels:
///
/// - A setting is the name of a method of [`Description`](crate::Description) and its argument,
///   such as `unit = "bytes"` or `max_series = 1_000`, or the name only, such as `exemplars`. You
///   can use `unit`, `buckets`, `native`, `native_buckets`, `zero_threshold`, `max_series`,
///   `expire_after`, `exemplars` and `striped`.
/// - A label is a literal name and a value of any type that implements
///   [`LabelValue`](crate::LabelValue): `"status" => 200`. The macro borrows the value. For names
///   that are only known at run time, use [`CounterFamily<Values>`](crate::label::Values).
///
/// Without labels, the macro returns a `&'static` [`Counter`](crate::Counter). With labels, it
/// returns a [`LabeledMetric`](crate::LabeledMetric), which finds the series at each call. If the
/// labels do not change, call [`LabeledMetric::bind`](crate::LabeledMetric::bind) once and keep the
/// result. The macro stores labels as strings; a [`Family`](crate::Family) of a label group can
/// also find the series of enums by arithmetic.
///
/// To keep a handle in a struct, bind it:
///
/// ```
/// use quipu::{Counter, Registry, counter};
///
/// struct Queue {
///     completed: Counter,
/// }
///
/// let name = "mail";
/// let queue = Queue { completed: counter!("tasks", "Tasks.", "queue" => name).bind() };
/// queue.completed.inc();
/// assert_eq!(Registry::global().value("tasks_total", &[("queue", "mail")]), Some(1.0));
/// ```
///
/// Without labels, clone the counter instead: `counter!("tasks", "Tasks.").clone()`. The result of
/// a macro with labels borrows their values, so a function cannot return it: call `.bind()` there.
///
/// To count in one statement:
///
/// ```
/// use quipu::{Registry, counter};
///
/// fn respond(method: &str, status: u16) {
///     counter!("responses", "Responses.", "method" => method, "status" => status).inc();
///     counter!("sent", "Bytes sent.", unit = "bytes").inc_by(512);
/// }
///
/// respond("GET", 200);
/// let labels = [("method", "GET"), ("status", "200")];
/// assert_eq!(Registry::global().value("responses_total", &labels), Some(1.0));
/// assert_eq!(Registry::global().value("sent_bytes_total", &[]), Some(512.0));
/// ```
///
/// The global registry is in private memory. To count in a file, or in another registry of yours,
/// call [`Registry::set_global`](crate::Registry::set_global) at the start of `main`.
///
/// You can count in one metric with several macros: give them the same name, help, settings and
/// label names, in the same order.
///
/// # Errors
/// Invalid names do not compile. If the registration fails otherwise, for example because a gauge
/// already uses the name, the macro returns a metric that no scrape shows, and your program can
/// still count. `quipu_registration_errors_total{metric,error}` of the global registry shows the
/// error. Nothing is printed, so check this counter if [`Registry::value`](crate::Registry::value)
/// returns `None` in a test.
///
/// ```compile_fail,E0080
/// quipu::counter!("jobs_total", "Completed jobs.").inc();
/// ```
///
/// ```compile_fail
/// quipu::counter!("jobs", "Completed jobs.", verbatim).inc();
/// ```
///
/// # Panics
/// If the system does not let this process reserve memory for a registry: see
/// [`Registry::new`](crate::Registry::new).
#[macro_export]
macro_rules! counter {
    ($($metric:tt)+) => { $crate::global_metric!(Counter, $($metric)+) };
}

/// `gauge!(name, help [, setting = value]* [, "label" => value]*)`
///
/// Returns a [`Gauge`](crate::Gauge) of the global registry. The arguments are the same as for
/// [`counter!`]. To keep a handle in a struct, bind it.
///
/// ```
/// use quipu::{Gauge, Registry, gauge};
///
/// let cellar: Gauge = gauge!("humidity", "Humidity.", "room" => "cellar").bind();
/// cellar.set(0.8);
///
/// gauge!("room_temperature", "Temperature.", unit = "celsius", "room" => "attic").set(21.5);
/// let temperature = Registry::global().value("room_temperature_celsius", &[("room", "attic")]);
/// assert_eq!(temperature, Some(21.5));
/// ```
#[macro_export]
macro_rules! gauge {
    ($($metric:tt)+) => { $crate::global_metric!(Gauge, $($metric)+) };
}

/// `int_gauge!(name, help [, setting = value]* [, "label" => value]*)`
///
/// Returns an [`IntGauge`](crate::IntGauge) of the global registry. The arguments are the same as
/// for [`counter!`]. To keep a handle in a struct, bind it.
///
/// ```
/// use quipu::{IntGauge, Registry, int_gauge};
///
/// let threads: IntGauge = int_gauge!("threads", "Threads.", "pool" => "io").bind();
/// threads.set(4);
///
/// let _running = int_gauge!("jobs_running", "Running jobs.").in_progress();
/// assert_eq!(Registry::global().value("jobs_running", &[]), Some(1.0));
/// ```
#[macro_export]
macro_rules! int_gauge {
    ($($metric:tt)+) => { $crate::global_metric!(IntGauge, $($metric)+) };
}

/// `histogram!(name, help [, setting = value]* [, "label" => value]*)`
///
/// Returns a [`Histogram`](crate::Histogram) of the global registry. The arguments are the same as
/// for [`counter!`]. To keep a handle in a struct, bind it.
///
/// ```
/// use quipu::{Histogram, Registry, histogram};
///
/// let reads: Histogram = histogram!("disk_seconds", "Duration.", "operation" => "read").bind();
/// reads.observe(0.002);
///
/// histogram!("row_size", "Size of a row.", unit = "bytes", buckets = [100.0, 1e4]).observe(512.0);
/// let _timer = histogram!("query_seconds", "Duration.", "table" => "users").start_timer();
/// assert_eq!(Registry::global().value("row_size_bytes_count", &[]), Some(1.0));
/// ```
#[macro_export]
macro_rules! histogram {
    ($($metric:tt)+) => { $crate::global_metric!(Histogram, $($metric)+) };
}

/// The common part of the macros. The values of labels are a field of a struct expression, because
/// temporary values in it then live as long as the variable of a `let` statement.
#[doc(hidden)]
#[macro_export]
macro_rules! global_metric {
    // Before the other rules, because `unit = "bytes"` and `&labels` are also expressions.
    ($instrument:ident, $name:expr, $setting:ident = $($rest:tt)*) => {
        $crate::global_metric!($instrument, $name)
    };
    ($instrument:ident, $name:expr, & $($rest:tt)*) => {
        $crate::global_metric!($instrument, $name)
    };
    (
        $instrument:ident, $name:expr, $help:expr
        $(, $setting:ident $(= $argument:expr)?)* $(,)?
    ) => {{
        $($crate::assert_setting!($setting);)*
        $crate::assert_constant_name!($name);
        static METRIC: $crate::__private::LazyMetric<$crate::$instrument> =
            $crate::__private::LazyMetric::unregistered();
        METRIC.get(|| $crate::Description::new($name, $help)$(.$setting($($argument)?))*)
    }};
    (
        $instrument:ident, $name:expr, $help:expr
        $(, $setting:ident $(= $argument:expr)?)* $(, $label:literal => $value:expr)+ $(,)?
    ) => {
        $crate::LabeledMetric {
            family: {
                $($crate::assert_setting!($setting);)*
                $crate::assert_constant_name!($name);
                const _: () = $crate::__private::assert_labels(&[$($label),+]);
                static METRIC: $crate::__private::LazyMetric<
                    $crate::Family<$crate::$instrument, $crate::label::Values<'static>>,
                > = $crate::__private::LazyMetric::unregistered();
                METRIC.get(|| {
                    $crate::Description::new($name, $help)
                        $(.$setting($($argument)?))*
                        .labels([$($label),+])
                })
            },
            labels: $crate::__private::TextLabels { values: $crate::label_texts!($($value),+) },
        }
    };
    // The remaining rules explain mistakes.
    ($instrument:ident, $name:expr $(,)?) => {
        compile_error!("write the help as the second argument, after the name")
    };
    ($instrument:ident, $name:expr, $label:literal => $($rest:tt)*) => {
        $crate::global_metric!($instrument, $name)
    };
    (
        $instrument:ident, $name:expr, $help:expr
        $(, $setting:ident $(= $argument:expr)?)* $(, $label:literal => $value:expr)+,
        $late:ident $($rest:tt)*
    ) => {
        compile_error!(concat!(
            "settings come before labels: move `", stringify!($late), "` before the first label",
        ))
    };
    ($instrument:ident, $name:expr, $help:expr, $($rest:tt)*) => {
        compile_error!(
            "a label is a literal name and a value, such as \"method\" => method: for names that \
            are known at run time, use a family with labels of the type quipu::label::Values"
        )
    };
}

/// Checks the name of a metric at compile time. The length of an array, unlike a `const` item, lets
/// the compiler point a name that is not constant to its variable.
#[doc(hidden)]
#[macro_export]
macro_rules! assert_constant_name {
    ($name:expr) => {
        let _: [(); {
            $crate::__private::assert_metric($name);
            0
        }] = [];
    };
}

/// Accepts the settings of the metrics that macros register, and refuses all other methods of a
/// description, also hidden ones. `$more` are the names that only the caller accepts.
#[doc(hidden)]
#[macro_export]
macro_rules! assert_setting {
    (unit $($more:literal)?) => {};
    (buckets $($more:literal)?) => {};
    (native $($more:literal)?) => {};
    (native_buckets $($more:literal)?) => {};
    (zero_threshold $($more:literal)?) => {};
    (max_series $($more:literal)?) => {};
    (expire_after $($more:literal)?) => {};
    (exemplars $($more:literal)?) => {};
    (striped $($more:literal)?) => {};
    ($setting:ident $($more:literal)?) => {
        compile_error!(concat!(
            "`", stringify!($setting), "` is not a setting: use unit, buckets, native, \
            native_buckets, zero_threshold, max_series, expire_after, exemplars, striped",
            $($more)?
        ));
    };
}

/// Accepts the settings of a field of a group of metrics: the settings of the macros, and of more
/// kinds of metrics. `values` is not one of them, because it takes two arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! assert_field_setting {
    (quantiles) => {};
    (window) => {};
    (accuracy) => {};
    (labels) => {};
    (states) => {};
    (aggregation) => {};
    ($setting:ident) => {
        $crate::assert_setting!(
            $setting ", quantiles, window, accuracy, labels, states, aggregation; or rename, help"
        );
    };
}

/// A list of references to label values: nested pairs, which implement
/// `LabelTexts`.
#[doc(hidden)]
#[macro_export]
macro_rules! label_texts {
    () => { () };
    ($first:expr $(, $rest:expr)*) => { (&$first, $crate::label_texts!($($rest),*)) };
}
