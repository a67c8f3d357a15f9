//! Reads the sources of all places. The places read one at a time, the smallest sources first,
//! because the budget for a source depends on the sources before it.
//!
//! A slow place must not delay the others for long, so these turns end at some time. From then on,
//! all places read their remaining sources in parallel. If a place does not finish soon, the page
//! shows its last state.

use std::sync::Arc;
use std::time::Instant;

use super::place::{Files, Place};
use super::source::Budget;

/// The indices of a place's sources, in reading order.
type List = Arc<[usize]>;

/// Reads all sources of the idle places, in turns until `until`. Returns shortly after `end` at the
/// latest.
pub(super) fn read(places: &mut [Place], bytes: u64, until: Instant, end: Instant) {
    let mut budget = Budget::new(bytes);
    let mut order = Vec::new();
    for (at, place) in places.iter().enumerate() {
        match place.files.here() {
            Some(Files { sources, .. }) => {
                let sources = sources.iter().enumerate();
                order.extend(sources.map(|(number, source)| (source.size(), at, number)));
            }
            None => place.states.iter().for_each(|one| budget.take(one.used)),
        }
    }
    // We sort by size, because a large source must not use up the budget of smaller ones.
    order.sort_by_key(|(size, ..)| *size);
    let mut lists = vec![Vec::new(); places.len()];
    order.iter().for_each(|(_, at, number)| lists[*at].push(*number));
    let lists: Vec<List> = lists.into_iter().map(List::from).collect();
    // The number of unread sources of each place.
    let mut left: Vec<usize> = lists.iter().map(|list| list.len()).collect();
    for batch in order.chunk_by(|(_, one, _), (_, next, _)| one == next) {
        if Instant::now() >= until {
            break;
        }
        let at = batch[0].1;
        send(&mut places[at], &lists[at], left[at], batch.len(), budget, until);
        // A late place may exceed the common budget, but only until the next reading.
        if let Some(files) = places[at].files.wait(until) {
            (budget, left[at]) = (files.budget, files.left);
        }
    }
    for at in (0..places.len()).filter(|at| left[*at] > 0) {
        let mut budget = budget;
        for (other, place) in places.iter().enumerate().filter(|(other, _)| *other != at) {
            let rest = &lists[other][lists[other].len() - left[other]..];
            let known = rest.iter().filter_map(|number| place.states.get(*number));
            known.for_each(|one| budget.take(one.used));
        }
        send(&mut places[at], &lists[at], left[at], left[at], budget, end);
    }
    // We don't wait for a place that was already busy at the beginning.
    for (place, list) in places.iter_mut().zip(&lists).filter(|(_, list)| !list.is_empty()) {
        let back = place.files.wait(end).map(|files| (files.left, files.budget));
        // This place finished its last turn too late for another one, so it reads the rest now.
        if let Some((left @ 1.., budget)) = back {
            send(place, list, left, left, budget, end);
        }
    }
}

/// Lets an idle place read the next `count` of its remaining sources. If this ends after `until`,
/// it reads the rest as well, because it will not get another turn.
fn send(place: &mut Place, list: &List, left: usize, count: usize, budget: Budget, until: Instant) {
    let (list, from) = (Arc::clone(list), list.len() - left.min(list.len()));
    place.files.send(move |files| files.read(&list[from..], count, budget, until));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::super::Options;
    use super::super::table::Table;
    use super::*;

    #[test]
    fn a_slow_place_does_not_hold_up_others() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        for place in ["slow", "fast"] {
            fs::create_dir(path(place)).unwrap();
            for pages in 1..4 {
                let file = path(&format!("{place}/{pages}.quipu"));
                fs::write(file, vec![0; pages << 12]).unwrap();
            }
        }
        let places = vec![path("slow"), path("fast")];
        let options = Options { places, bytes: 1 << 20, most: 10, ..Options::default() };
        let mut table = Table::new(options).unwrap();
        table.scan();
        let places = table.places_mut();
        // The slow place finishes its first file after the other place finishes one.
        let (tell, told) = channel();
        places[0].files.here_mut().unwrap().waits = Some(told);
        places[1].files.here_mut().unwrap().tells = Some(tell);
        let now = Instant::now();
        read(places, 1 << 20, now + Duration::from_millis(50), now + Duration::from_secs(60));
        for place in places {
            let files = place.files.here().unwrap();
            assert_eq!(files.left, 0);
            assert_eq!(files.sources.len(), 3);
            // The files are not segments, which a reading reports.
            assert!(files.sources.iter().all(|source| source.fault.is_some()), "{files:?}");
        }
    }
}
