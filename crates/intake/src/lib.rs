//! What comes in from outside: each file or folder is one way in.
//!
//! All of them put what they read into the state's segment through an [`Intake`], and report what
//! they refuse to [`Refusals`].

pub mod admission;
pub mod body;
mod brief;
mod encoded;
pub mod gate;
pub mod graphite;
pub mod import;
pub mod influx;
pub mod ingest;
pub mod listeners;
pub mod order;
pub mod otlp;
pub mod place;
pub mod push;
pub mod rate;
pub mod refusals;
pub mod settings;
pub mod statsd;
pub mod sweep;
pub mod tally;
pub mod types;
pub mod write;

use std::cell::{RefCell, RefMut};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::time::Duration;

use quipu::intake::{Given, GivenExemplar, Intake, Metric, Mode, Refused};
use quipu::snapshot::Timestamp;

use encoded::EncodedSeries;
use gate::Gate;
use order::{Arrival, Class, Misplaced, NotFollowed, Order, Turn};
use place::Places;
use push::Push;
use quipu_client::via::Via;
use quipu_http::Request;
use quipu_process::omitted::OmittedFamilies;
use quipu_translate::rules::Rules;
use rate::Rates;
use refusals::Refusals;
use write::Families;

/// The settings of all inputs.
#[derive(Debug, Clone)]
pub struct Options {
    /// The most series.
    pub series: u64,
    /// How many samples a second may come in: of all sources, and of each.
    pub sample_rates: [Option<NonZeroU64>; 2],
    /// The time after which a series that came in and was not updated is hidden.
    pub expiry: Option<Duration>,
    /// How points of OTLP become series.
    pub otlp: otlp::Options,
    /// The most bytes of a body after decompression.
    pub body_bytes: usize,
}

/// What all ways in share.
pub struct Shared {
    /// What was taken and refused.
    pub refusals: Refusals,
    /// The times of the last samples.
    order: Order,
    /// What senders of remote write 1.0 say of families.
    families: Families,
    /// Keeps scrapes and replacements of groups apart.
    pub gate: Gate,
    /// The places for requests that take much memory.
    pub places: Places,
    /// How many samples a second may come in.
    pub rates: Rates,
    /// Pushgateway's API.
    pub push: Push,
    /// The time after which a series that was not updated is hidden, unless its way in says
    /// otherwise.
    pub expiry: Option<Duration>,
    /// How points of OTLP become series.
    pub otlp: otlp::Options,
    /// The most bytes of a body after decompression.
    pub body_bytes: usize,
    /// What samples are subject to, if anything.
    pub rules: Option<Rules>,
    /// Whose samples came in.
    pub via: Via,
    /// The families that were logged because `/metrics` omits them.
    pub omitted: OmittedFamilies,
}

impl Shared {
    /// Without samples so far.
    pub fn new(options: &Options, refusals: Refusals, push: Push, rules: Option<Rules>) -> Self {
        Self {
            rules,
            refusals,
            order: Order::new(options.series),
            families: Families::default(),
            gate: Gate::default(),
            places: Places::default(),
            rates: Rates::new(options.sample_rates),
            push,
            expiry: options.expiry,
            otlp: options.otlp.clone(),
            body_bytes: options.body_bytes,
            via: Via::default(),
            omitted: OmittedFamilies::default(),
        }
    }
}

/// The ways of a sample into an intake: through the rules, if there are any. Pushed groups alone go
/// around them.
impl Shared {
    /// As [`Intake::take`].
    ///
    /// # Errors
    /// As [`Intake::take`].
    #[inline]
    pub fn take(
        &self,
        intake: &mut Intake,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        given: &Given<'_>,
        mode: Mode,
        start: Option<Timestamp>,
    ) -> Result<(), Refused> {
        match &self.rules {
            None => intake.take(metric, labels, given, mode, start),
            Some(rules) => rules.take(intake, metric, labels, given, mode, start),
        }
    }

    /// Follows the total of a counter whose series keeps the order of its samples. Returns false,
    /// and changes nothing, if it does not, or may not: a rule may lead two series into one. Then
    /// [`Shared::place`] finds the place of the sample, and [`Shared::take`] takes it.
    ///
    /// The series keeps the order if it has the time of its last sample, which it gets with the
    /// first one. A counter whose type changes has no series any more, and one whose type was
    /// another has none yet; so the types of a series are compared whenever one begins.
    ///
    /// # Errors
    /// The sample has no place, or as [`Intake::take`].
    pub fn follow(
        &self,
        intake: &mut Intake,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        total: f64,
        start: Option<Timestamp>,
    ) -> Result<bool, NotFollowed> {
        if self.rules.is_some() {
            return Ok(false);
        }
        let followed = intake.follow(metric, labels, total, start).map_err(NotFollowed::Refused)?;
        let Some(followed) = followed else { return Ok(false) };
        Turn::of(followed).map(|_| true).map_err(NotFollowed::Misplaced)
    }

    /// Finds the place of a sample as [`Order::place`] does. If it begins a series that was a
    /// counter, that one has the time of the last sample.
    ///
    /// # Errors
    /// As [`Order::place`].
    pub fn place(
        &self,
        intake: &mut Intake,
        (name, labels): (&str, &[(&str, &str)]),
        arrival: &Arrival,
        now_ms: i64,
    ) -> Result<Turn, Misplaced> {
        let turn = self.order.place(arrival, now_ms)?;
        let begins = matches!(turn, Turn::First | Turn::OtherClass);
        if begins
            && arrival.class != Class::Counter
            && self.rules.is_none()
            && let Some(last) = intake.last_sample(name, labels)
        {
            let last_ms = i64::try_from(last.0 / 1_000_000).unwrap_or(i64::MAX);
            if arrival.timestamp_ms <= last_ms {
                self.order.forget(arrival.series);
                return order::late(last_ms.saturating_sub(arrival.timestamp_ms));
            }
        }
        Ok(turn)
    }

    /// Takes a value unless its series has a later one. One that has the time of the last one
    /// replaces it: senders may have times in seconds. `times` are its own and now, in milliseconds
    /// since 1970, and `labels` are in the order of their names.
    ///
    /// # Errors
    /// The sample has no place, or as [`Intake::take`].
    pub fn take_latest(
        &self,
        intake: &mut Intake,
        metric: Metric<'_>,
        labels: &[(&str, &str)],
        (given, value): (&Given<'_>, f64),
        (timestamp_ms, now_ms): (i64, i64),
    ) -> Result<(), NotFollowed> {
        let series = self.order.hash(metric.name, labels);
        let class = if matches!(given, Given::Gauge(_)) { Class::Gauge } else { Class::Unknown };
        let arrival = Arrival { series, timestamp_ms, value: value.to_bits(), class };
        let named = (metric.name, labels);
        let turn = match self.place(intake, named, &arrival, now_ms) {
            Err(Misplaced::Duplicate) => {
                self.order.forget(series);
                self.place(intake, named, &arrival, now_ms)
            }
            turn => turn,
        };
        if turn.map_err(NotFollowed::Misplaced)? == Turn::Seen {
            return Ok(());
        }
        self.take(intake, metric, labels, given, Mode::Set, None).map_err(|refused| {
            self.order.forget(series);
            NotFollowed::Refused(refused)
        })
    }

    /// Keeps an exemplar of a series that was taken: see [`Intake::exemplify`]. Returns whether it
    /// was kept.
    pub fn exemplify(
        &self,
        intake: &mut Intake,
        name: &str,
        labels: &[(&str, &str)],
        exemplar: &GivenExemplar<'_>,
    ) -> bool {
        let kept = match &self.rules {
            None => intake.exemplify(name, labels, exemplar),
            Some(rules) => rules.exemplify(intake, name, labels, exemplar),
        };
        // A segment that cannot be read keeps none.
        kept.unwrap_or(false)
    }

    /// As [`Intake::remove`].
    ///
    /// # Errors
    /// As [`Intake::remove`].
    pub fn remove(
        &self,
        intake: &mut Intake,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<u64, quipu::Error> {
        match &self.rules {
            None => intake.remove(name, labels),
            Some(rules) => rules.remove(intake, name, labels),
        }
    }
}

/// What the routes of one server thread need to take metrics in. Clones share it.
#[derive(Clone)]
pub struct Inputs {
    intake: Rc<RefCell<Intake>>,
    /// The known series of remote write, and of imported text.
    written: Rc<RefCell<EncodedSeries>>,
    imported: Rc<RefCell<EncodedSeries>>,
    shared: &'static Shared,
}

impl Inputs {
    /// Creates the inputs of one thread.
    pub fn new(intake: Intake, shared: &'static Shared) -> Self {
        let intake = Rc::new(RefCell::new(intake));
        Self { intake, written: Rc::default(), imported: Rc::default(), shared }
    }

    /// The intake of this thread. A route holds it only while it handles a request, or in one step.
    pub fn intake(&self) -> RefMut<'_, Intake> {
        self.intake.borrow_mut()
    }

    /// The series that are known by their bytes in remote write.
    fn written(&self) -> RefMut<'_, EncodedSeries> {
        self.written.borrow_mut()
    }

    /// The series that are known by their bytes in imported text.
    fn imported(&self) -> RefMut<'_, EncodedSeries> {
        self.imported.borrow_mut()
    }

    /// What all ways in share.
    pub fn shared(&self) -> &'static Shared {
        self.shared
    }

    /// Where refused input is reported.
    pub fn refusals(&self) -> &'static Refusals {
        &self.shared.refusals
    }

    /// A metric with the expiry of the settings.
    pub fn metric<'a>(&self, name: &'a str) -> Metric<'a> {
        Metric { expiry: self.shared.expiry, ..Metric::new(name) }
    }
}

/// The address of the client.
fn source(request: &Request) -> String {
    request.client().map_or_else(String::new, |address| address.to_string())
}
