//! Measures the cost of labels whose values are strings that are not known in advance: an addition
//! to one of a thousand series.

// The derived code of measured contains functions with an argument for each label.
#![allow(clippy::too_many_arguments)]

use measured::label::LabelGroupSet;
use measured::{Counter, CounterVec, LabelGroup};
use paracord::ParaCord;
use prometheus::{IntCounterVec, Opts};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter as ClientCounter;
use prometheus_client::metrics::family::Family;
use quipu::{CounterFamily, Description, Registry};

use super::{Axis, EVERY, Entrant, case};
use crate::counting::contender::Contender;
use crate::counting::data::{Random, TURN};
use crate::counting::peer::{MeasuredParacord, Prometheus, PrometheusClient};
use crate::counting::workload::{each, time};
use crate::counting::{Plan, Quipu};
use crate::record::{Label, Record};

pub(super) const AXIS: Axis = Axis {
    name: "labels",
    points: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
    fits: EVERY,
    entrants: &[
        Entrant { key: Quipu::KEY, most: MOST, turn: quipu },
        Entrant { key: MeasuredParacord::KEY, most: MOST, turn: measured },
        Entrant { key: PrometheusClient::KEY, most: MOST, turn: prometheus_client },
        Entrant { key: Prometheus::KEY, most: MOST, turn: prometheus },
    ],
};

const MOST: usize = 10;
const SERIES: usize = 1_000;
/// The number of values of each label after the first. Only the first label identifies the series.
const VALUES: usize = 10;
const NAMES: [&str; MOST] =
    ["user", "route", "method", "status", "region", "zone", "host", "version", "tenant", "kind"];

/// The values of the labels of a series.
type Values = [&'static str; MOST];

/// Random series, with values of some ten bytes.
fn inputs() -> Vec<Values> {
    let text = |label: usize, value: usize| &*format!("{}-{value:04}", NAMES[label]).leak();
    let series: Vec<Values> = (0..SERIES)
        .map(|number| {
            std::array::from_fn(|label| match label {
                0 => text(label, number),
                _ => text(label, (number * 7 + label) % VALUES),
            })
        })
        .collect();
    let mut random = Random::new(1);
    (0..TURN).map(|_| series[random.below(SERIES)]).collect()
}

fn measure<C: Contender>(plan: &Plan, labels: usize, add: impl Fn(&Values) + Sync) -> Vec<Record> {
    let inputs = inputs();
    let inputs: Vec<&Values> = inputs.iter().collect();
    inputs.iter().for_each(|values| add(values));
    let case = case(AXIS.name, labels);
    let time = time::<C>(plan, &case, 1, |_, n| each(&inputs, n, &add));
    vec![Label::new(&case, &C::subject(), "add", "ns").of(&[time.median])]
}

/// Calls a function for a number of labels as a constant.
macro_rules! for_labels {
    ($labels:expr, $call:ident($($argument:expr),*)) => {
        match $labels {
            1 => $call::<1>($($argument),*),
            2 => $call::<2>($($argument),*),
            3 => $call::<3>($($argument),*),
            4 => $call::<4>($($argument),*),
            5 => $call::<5>($($argument),*),
            6 => $call::<6>($($argument),*),
            7 => $call::<7>($($argument),*),
            8 => $call::<8>($($argument),*),
            9 => $call::<9>($($argument),*),
            _ => $call::<10>($($argument),*),
        }
    };
}

fn quipu(plan: &Plan, labels: usize) -> Vec<Record> {
    fn with<const N: usize>(plan: &Plan) -> Vec<Record> {
        let description = Description::new("counters", "Things that were counted.");
        let family: CounterFamily<[&str; N]> = Registry::new()
            .register(description.labels(NAMES[..N].iter().copied()))
            .expect("a sound name in a new registry");
        measure::<Quipu>(plan, N, |values| {
            family.inc(values.first_chunk::<N>().expect("there are that many values"));
        })
    }
    if labels == 0 {
        let counter = Registry::new().counter("counters", "Things that were counted.");
        let counter = counter.expect("a sound name in a new registry");
        return measure::<Quipu>(plan, 0, |_| counter.inc());
    }
    for_labels!(labels, with(plan))
}

/// Defines a group of labels of measured, all of them dynamic.
macro_rules! measured_group {
    ($group:ident $set:ident: $($label:ident $index:literal),*) => {
        #[derive(Clone, Copy, LabelGroup)]
        #[label(set = $set)]
        struct $group<'a> {
            $(#[label(dynamic_with = ParaCord)] $label: &'a str,)*
        }

        impl $group<'static> {
            fn measure(plan: &Plan, labels: usize) -> Vec<Record> {
                let set = $set { $($label: ParaCord::default()),* };
                measure_group(plan, labels, set, |values| $group { $($label: values[$index]),* })
            }
        }
    };
}

measured_group!(One OneSet: a 0);
measured_group!(Two TwoSet: a 0, b 1);
measured_group!(Three ThreeSet: a 0, b 1, c 2);
measured_group!(Four FourSet: a 0, b 1, c 2, d 3);
measured_group!(Five FiveSet: a 0, b 1, c 2, d 3, e 4);
measured_group!(Six SixSet: a 0, b 1, c 2, d 3, e 4, f 5);
measured_group!(Seven SevenSet: a 0, b 1, c 2, d 3, e 4, f 5, g 6);
measured_group!(Eight EightSet: a 0, b 1, c 2, d 3, e 4, f 5, g 6, h 7);
measured_group!(Nine NineSet: a 0, b 1, c 2, d 3, e 4, f 5, g 6, h 7, i 8);
measured_group!(Ten TenSet: a 0, b 1, c 2, d 3, e 4, f 5, g 6, h 7, i 8, j 9);

fn measure_group<S, G>(
    plan: &Plan,
    labels: usize,
    set: S,
    group: impl Fn(&Values) -> G + Sync,
) -> Vec<Record>
where
    S: LabelGroupSet<Group<'static> = G> + Sync,
    S::Unique: Send + Sync,
    G: LabelGroup,
{
    let family = CounterVec::with_label_set(set);
    measure::<MeasuredParacord>(plan, labels, |values| family.inc(group(values)))
}

fn measured(plan: &Plan, labels: usize) -> Vec<Record> {
    match labels {
        0 => {
            let counter = Counter::new();
            measure::<MeasuredParacord>(plan, 0, |_| counter.inc())
        }
        1 => One::measure(plan, 1),
        2 => Two::measure(plan, 2),
        3 => Three::measure(plan, 3),
        4 => Four::measure(plan, 4),
        5 => Five::measure(plan, 5),
        6 => Six::measure(plan, 6),
        7 => Seven::measure(plan, 7),
        8 => Eight::measure(plan, 8),
        9 => Nine::measure(plan, 9),
        _ => Ten::measure(plan, 10),
    }
}

fn prometheus_client(plan: &Plan, labels: usize) -> Vec<Record> {
    if labels == 0 {
        let counter = ClientCounter::<u64>::default();
        return measure::<PrometheusClient>(plan, 0, |_| {
            counter.inc();
        });
    }
    match labels {
        1 => ClientOne::measure(plan, 1),
        2 => ClientTwo::measure(plan, 2),
        3 => ClientThree::measure(plan, 3),
        4 => ClientFour::measure(plan, 4),
        5 => ClientFive::measure(plan, 5),
        6 => ClientSix::measure(plan, 6),
        7 => ClientSeven::measure(plan, 7),
        8 => ClientEight::measure(plan, 8),
        9 => ClientNine::measure(plan, 9),
        _ => ClientTen::measure(plan, 10),
    }
}

/// Defines a set of labels of prometheus-client, which owns its strings.
macro_rules! client_set {
    ($set:ident: $($label:ident $index:literal),*) => {
        #[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
        struct $set {
            $($label: String,)*
        }

        impl $set {
            fn measure(plan: &Plan, labels: usize) -> Vec<Record> {
                let family = Family::<Self, ClientCounter>::default();
                measure::<PrometheusClient>(plan, labels, |values| {
                    let set = Self { $($label: values[$index].to_owned(),)* };
                    family.get_or_create(&set).inc();
                })
            }
        }
    };
}

client_set!(ClientOne: a 0);
client_set!(ClientTwo: a 0, b 1);
client_set!(ClientThree: a 0, b 1, c 2);
client_set!(ClientFour: a 0, b 1, c 2, d 3);
client_set!(ClientFive: a 0, b 1, c 2, d 3, e 4);
client_set!(ClientSix: a 0, b 1, c 2, d 3, e 4, f 5);
client_set!(ClientSeven: a 0, b 1, c 2, d 3, e 4, f 5, g 6);
client_set!(ClientEight: a 0, b 1, c 2, d 3, e 4, f 5, g 6, h 7);
client_set!(ClientNine: a 0, b 1, c 2, d 3, e 4, f 5, g 6, h 7, i 8);
client_set!(ClientTen: a 0, b 1, c 2, d 3, e 4, f 5, g 6, h 7, i 8, j 9);

fn prometheus(plan: &Plan, labels: usize) -> Vec<Record> {
    let options = Opts::new("counters_total", "Things that were counted.");
    let family = IntCounterVec::new(options, &NAMES[..labels]).expect("a sound name");
    if labels == 0 {
        let counter = family.with_label_values::<&str>(&[]);
        return measure::<Prometheus>(plan, 0, |_| counter.inc());
    }
    measure::<Prometheus>(plan, labels, |values| {
        family.with_label_values(&values[..labels]).inc();
    })
}
