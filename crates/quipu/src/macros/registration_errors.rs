//! `quipu_registration_errors`: the metrics of macros that could not be registered.
//!
//! A collector shows these errors, because the registry can be full: then it cannot take this
//! metric either.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::collector::Collector;
use crate::description::Description;
use crate::error::Error;
use crate::registry::Registry;
use crate::snapshot::Sink;

/// Macros that could not register a metric, for the same reason.
struct RegistrationError {
    metric: String,
    error: String,
    macros: AtomicU64,
    /// The error before this one in the list.
    next: Option<&'static RegistrationError>,
}

/// The last error of a list that only grows: null, or from `Box::into_raw`.
static LAST: AtomicPtr<RegistrationError> = AtomicPtr::new(ptr::null_mut());

/// Adds an error to the list that the global registry shows.
pub(super) fn record(error: &Error, description: &Description) {
    let (metric, error) = (description.full_name(), error.reason());
    let mut last = last();
    let mut made = Box::new(RegistrationError { metric, error, macros: 1.into(), next: None });
    loop {
        let is_same =
            |other: &&RegistrationError| other.metric == made.metric && other.error == made.error;
        if let Some(known) = list(last).find(is_same) {
            // Relaxed: a count that orders nothing.
            known.macros.fetch_add(1, Ordering::Relaxed);
            break;
        }
        made.next = last;
        let unset = last.map_or(ptr::null_mut(), |last| ptr::from_ref(last).cast_mut());
        let new = Box::into_raw(made);
        // Release: the error precedes its pointer, for the loads in `last`. This thread loaded the
        // earlier errors like this, so such a load makes them visible, too. Relaxed: `last` loads
        // the pointer of the faster thread again.
        match LAST.compare_exchange(unset, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => break,
            // SAFETY: the pointer is from above, and no other thread can see it.
            Err(_) => made = unsafe { Box::from_raw(new) },
        }
        last = self::last();
    }
    // An error means that the collector is already registered.
    let _ = Registry::global().register_collector(RegistrationErrors);
}

fn last() -> Option<&'static RegistrationError> {
    // Acquire: sees the error, which another thread added.
    // SAFETY: the pointer is null or from `Box::into_raw`, and is never dropped.
    unsafe { LAST.load(Ordering::Acquire).as_ref() }
}

fn list(
    last: Option<&'static RegistrationError>,
) -> impl Iterator<Item = &'static RegistrationError> {
    std::iter::successors(last, |error| error.next)
}

/// Collects the errors.
struct RegistrationErrors;

impl Collector for RegistrationErrors {
    fn names(&self) -> Vec<String> {
        vec![NAME.to_owned()]
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let mut family = sink.counter(NAME, HELP, ["metric", "error"]);
        for RegistrationError { metric, error, macros, .. } in list(last()) {
            family.sample([metric, error], macros.load(Ordering::Relaxed));
        }
    }
}

const NAME: &str = "quipu_registration_errors";
const HELP: &str = "Macros whose metric could not be registered, so that it is not shown.";
