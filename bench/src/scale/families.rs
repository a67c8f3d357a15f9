//! The families of a registry, each with one counter: the cost of registering another name, and of
//! scraping a family.

use std::time::Instant;

use prometheus::{IntCounter, TextEncoder};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter as ClientCounter;
use prometheus_client::registry::Registry as ClientRegistry;
use quipu::Registry;

use super::{Axis, EVERY, Entrant, case, repeated};
use crate::counting::contender::Contender;
use crate::counting::peer::{Prometheus, PrometheusClient};
use crate::counting::{Plan, Quipu, QuipuInFile, in_file};
use crate::measure::{black_box, on_core};
use crate::record::{Label, Record};

pub(super) const AXIS: Axis = Axis {
    name: "families",
    points: &[1, 10, 100, 1_000, 10_000],
    fits: EVERY,
    entrants: &[
        Entrant { key: Quipu::KEY, most: usize::MAX, turn: quipu },
        Entrant { key: QuipuInFile::KEY, most: usize::MAX, turn: quipu_in_file },
        Entrant { key: PrometheusClient::KEY, most: usize::MAX, turn: prometheus_client },
        Entrant { key: Prometheus::KEY, most: usize::MAX, turn: prometheus },
    ],
};

const HELP: &str = "Things that were counted.";

/// Times the registration of the last tenth of the names, and a scrape of all.
fn measure<C: Contender, T>(
    plan: &Plan,
    families: usize,
    registry: impl Fn() -> T + Sync,
    register: impl Fn(&mut T, &str) + Sync,
    scrape: impl Fn(&T, &mut Vec<u8>) + Sync,
) -> Vec<Record> {
    let case = case(AXIS.name, families);
    let label = |metric: &str| Label::new(&case, &C::subject(), metric, "ns");
    let names: Vec<String> =
        (0..families).map(|number| format!("service_things_{number:05}")).collect();
    let (before, last) = names.split_at(families - families.div_ceil(10));
    on_core(0, || {
        // The time of one name is too short for a clock, so a hundred or more are timed together.
        let mut registries: Vec<T> = (0..(100 / last.len()).max(1)).map(|_| registry()).collect();
        for registry in &mut registries {
            before.iter().for_each(|name| register(registry, name));
        }
        let start = Instant::now();
        for registry in &mut registries {
            last.iter().for_each(|name| register(registry, name));
        }
        let elapsed = start.elapsed().as_nanos() as f64;
        let kept = &registries[0];
        let mut page = Vec::new();
        scrape(kept, &mut page);
        let lines = page.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"service"));
        assert_eq!(lines.count(), families);
        let time = repeated(plan, families, || {
            scrape(kept, &mut page);
            black_box(&page);
        });
        vec![
            label("register").of(&[elapsed / (registries.len() * last.len()) as f64]),
            label("scrape").of(&[time]),
        ]
    })
}

fn quipu(plan: &Plan, families: usize) -> Vec<Record> {
    ours::<Quipu>(plan, families, Registry::new)
}

fn quipu_in_file(plan: &Plan, families: usize) -> Vec<Record> {
    ours::<QuipuInFile>(plan, families, in_file)
}

fn ours<C: Contender>(plan: &Plan, families: usize, registry: fn() -> Registry) -> Vec<Record> {
    let register = |registry: &mut Registry, name: &str| {
        registry.counter(name, HELP).expect("a sound name that is new").inc();
    };
    let scrape = |registry: &Registry, page: &mut Vec<u8>| {
        page.clear();
        registry.scrape().append_to(page);
    };
    measure::<C, _>(plan, families, registry, register, scrape)
}

fn prometheus_client(plan: &Plan, families: usize) -> Vec<Record> {
    let register = |registry: &mut ClientRegistry, name: &str| {
        let counter = ClientCounter::<u64>::default();
        registry.register(name, HELP, counter.clone());
        counter.inc();
    };
    let scrape = |registry: &ClientRegistry, page: &mut Vec<u8>| {
        page.clear();
        let mut text = String::from_utf8(std::mem::take(page)).expect("it is empty");
        text::encode(&mut text, registry).expect("a string takes the text");
        *page = text.into_bytes();
    };
    measure::<PrometheusClient, _>(plan, families, ClientRegistry::default, register, scrape)
}

fn prometheus(plan: &Plan, families: usize) -> Vec<Record> {
    let register = |registry: &mut prometheus::Registry, name: &str| {
        let counter = IntCounter::new(name, HELP).expect("a sound name");
        registry.register(Box::new(counter.clone())).expect("the name is new");
        counter.inc();
    };
    let scrape = |registry: &prometheus::Registry, page: &mut Vec<u8>| {
        page.clear();
        let mut text = String::from_utf8(std::mem::take(page)).expect("it is empty");
        let encoded = TextEncoder::new().encode_utf8(&registry.gather(), &mut text);
        encoded.expect("a string takes the text");
        *page = text.into_bytes();
    };
    measure::<Prometheus, _>(plan, families, prometheus::Registry::new, register, scrape)
}
