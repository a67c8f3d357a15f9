//! Families on a machine with many CPUs, which begin with one lane and earn others. No addition is
//! lost or counted twice, whenever this happens.
//!
//! The processes pretend to have many CPUs. Additions run on the machine's real CPUs, unless a test
//! names a CPU.

#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quipu_segment::series::{Cursor, Family, Label, Schema};
use quipu_segment::{Segment, Stripes, pretend_cpus};

#[path = "common/mod.rs"]
#[cfg(all(unix, not(miri)))]
mod common;

const CPUS: usize = 128;

/// Returns a family of `count` values. Its series consist of a count, a sum of floats and another
/// count.
fn family(segment: &Segment, name: &str, count: usize) -> Family {
    let values = (0..count).map(|i| i.to_string()).collect();
    let labels = vec![Label { name: "kind".into(), values: Some(values) }];
    let (name, cells, floats) = (name.to_owned(), 3, 0b10);
    let schema = Schema { name, cells, floats, additive: true, labels, ..Schema::default() };
    segment.family(&schema).unwrap()
}

/// Pretends that the machine has this number of CPUs, as long as the result lives.
fn machine(cpus: usize) -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    let machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    pretend_cpus(cpus);
    machine
}

fn segment() -> Segment {
    Segment::private(64 << 20).unwrap()
}

fn add(family: &Family, kind: u32, n: u64) {
    family.update(
        |key| key.index(kind, family.groups()),
        |cells| {
            cells.add(0, n);
            cells.add_float(1, n as f64);
            cells.add(2, 1);
        },
    );
}

/// Returns the sums of the series that a walk shows.
fn walk(family: &Family) -> Vec<(u32, u64, f64, u64)> {
    let mut found = Vec::new();
    let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
        let cells = view.cells;
        found.push((view.group, cells.sum(0), cells.sum_float(1), cells.sum(2)));
        ControlFlow::Continue(())
    });
    found
}

/// Returns the sums of the series, one by one.
fn read(family: &Family, kind: u32) -> Option<(u64, f64, u64)> {
    family.read(
        |key| key.index(kind, family.groups()),
        |cells| (cells.sum(0), cells.sum_float(1), cells.sum(2)),
    )
}

#[test]
fn a_family_begins_with_one_lane_and_earns_others() {
    let _machine = machine(CPUS);
    let segment = segment();
    let before = segment.used();
    let hits = family(&segment, "hits", 18);
    let cold = segment.used() - before;
    add(&hits, 3, 5);
    assert_eq!(walk(&hits), [(3, 5, 5.0, 1)]);
    assert!(cold < 4096, "{cold} bytes");
    hits.stripe();
    let hot = segment.used() - before - cold;
    assert!((128 * 64..256 << 10).contains(&hot), "{hot} bytes");
    add(&hits, 3, 7);
    add(&hits, 4, 1);
    assert_eq!(walk(&hits), [(3, 12, 12.0, 2), (4, 1, 1.0, 1)]);
    hits.stripe();
    assert_eq!(segment.used() - before - cold, hot, "they are taken once");
}

#[test]
fn a_walk_finds_the_same_sums_as_a_reader_of_each_series() {
    let _machine = machine(CPUS);
    // One slab or several. `Sums` reads 42 series at once.
    for count in [1, 2, 18, 41, 42, 43, 170, 171, 2000] {
        let segment = segment();
        let hits = family(&segment, "hits", count);
        let kinds = 0..count as u32;
        for round in 0..3_u64 {
            kinds.clone().step_by(3).for_each(|kind| add(&hits, kind, u64::from(kind) + round));
            match round {
                0 => hits.stripe(),
                1 => _ = hits.remove(|key| key.index(0, count as u32)).unwrap(),
                _ => {}
            }
            let each: Vec<_> = kinds
                .clone()
                .filter_map(|kind| read(&hits, kind).map(|(a, b, c)| (kind, a, b, c)))
                .collect();
            assert_eq!(walk(&hits), each, "{count} series, round {round}");
        }
        let last = kinds.clone().step_by(3).next_back().unwrap();
        if last > 0 {
            let n = 3 * u64::from(last) + 3;
            assert_eq!(read(&hits, last), Some((n, n as f64, 3)));
        }
    }
}

#[test]
fn additions_while_a_slab_earns_lanes_all_count() {
    let _machine = machine(CPUS);
    const THREADS: u64 = 4;
    let each: u64 = if cfg!(miri) { 20 } else { 20_000 };
    let rounds = if cfg!(miri) { 2 } else { 20 };
    for round in 0..rounds {
        let segment = segment();
        let hits = family(&segment, "hits", 400);
        let (counted, done) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (hits, counted) = (&hits, &counted);
                    scope.spawn(move || {
                        let handle = hits.bind(|key| key.index(399, 400));
                        for i in 0..each {
                            add(hits, (i % 2) as u32 * 300, 1);
                            handle.cells().add(0, 1);
                            if thread == 0 && i == each / 2 + round {
                                hits.stripe();
                            }
                            counted.fetch_add(2, Ordering::Release);
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let least = counted.load(Ordering::Acquire);
                    let sum = walk(&hits).iter().map(|&(_, count, ..)| count).sum::<u64>();
                    assert!(sum >= least.max(last), "{sum} of at least {least}, {last} before");
                    last = sum;
                }
            });
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        let half = THREADS * each / 2;
        assert_eq!(read(&hits, 0), Some((half, half as f64, half)));
        assert_eq!(read(&hits, 300), Some((half, half as f64, half)));
        assert_eq!(read(&hits, 399).unwrap().0, 2 * half);
    }
}

#[test]
fn a_reset_while_a_slab_earns_lanes_leaves_no_sum_below_zero() {
    let _machine = machine(CPUS);
    let rounds = if cfg!(miri) { 3 } else { 300 };
    for _ in 0..rounds {
        let segment = segment();
        let hits = family(&segment, "hits", 18);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    add(&hits, 7, 1);
                }
            });
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let seen = walk(&hits);
                    assert!(seen.iter().all(|&(_, a, _, b)| a.max(b) < 1 << 40), "{seen:?}");
                    let one = read(&hits, 7).unwrap_or_default();
                    assert!(one.0.max(one.2) < 1 << 40, "{one:?}");
                }
            });
            for i in 0..20 {
                let _ = hits.remove(|key| key.index(7, 18)).unwrap();
                if i == 10 {
                    hits.stripe();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn lanes_leave_half_of_a_segment_to_new_series() {
    let _machine = machine(CPUS);
    let limit = 4 << 20;
    let segment = Segment::private(limit).unwrap();
    let hits = family(&segment, "hits", 3000);
    hits.stripe();
    let used = segment.used();
    assert!((limit / 4..=limit / 2).contains(&used), "{used} of {limit} bytes");
    (0..3000).for_each(|kind| add(&hits, kind, 2));
    // There is room for others.
    for number in 0..40 {
        let other = family(&segment, &format!("other {number}"), 500);
        add(&other, 7, 1);
        assert_eq!(walk(&other), [(7, 1, 1.0, 1)]);
    }
    assert!(walk(&hits).iter().all(|&(_, n, ..)| n == 2));
}

/// Returns the bytes of a side allocation of 64 cells.
fn side_bytes(family: &Family, segment: &Segment) -> u64 {
    // We update first, because the first update may take other memory.
    add(family, 0, 1);
    let used = segment.used();
    family.update(
        |key| key.index(0, family.groups()),
        |cells| {
            let at = family.allocate_side(&cells, 8, 64).unwrap();
            let side = family.side(&cells, at).unwrap().cells().unwrap();
            side.add(63, 3);
            side.add(63, 4);
            assert_eq!(side.sum(63), 7);
        },
    );
    segment.used() - used
}

#[test]
fn side_allocations_of_a_large_family_take_one_lane() {
    let machine = machine(4);
    // On a machine with few CPUs, it begins with one lane because it is large.
    for (cpus, count) in [(4, 100_000), (16, 6000), (CPUS, 6000)] {
        pretend_cpus(cpus);
        let segment = segment();
        let large = family(&segment, "large", count);
        let bytes = side_bytes(&large, &segment);
        assert!(bytes < 1024, "{bytes} bytes with {cpus} CPUs");
    }
    pretend_cpus(CPUS);
    let segment = segment();
    let bytes = side_bytes(&family(&segment, "small", 18), &segment);
    assert!((8 * 4096..9 * 4096).contains(&bytes), "{bytes} bytes in a small family");
    drop(machine);
}

#[test]
fn a_full_segment_counts_on_in_one_lane() {
    let _machine = machine(CPUS);
    let segment = Segment::private(64 << 10).unwrap();
    let hits = family(&segment, "hits", 100);
    add(&hits, 3, 1);
    hits.stripe();
    add(&hits, 3, 1);
    assert_eq!(walk(&hits), [(3, 2, 2.0, 2)]);
}

#[test]
fn a_counter_of_a_window_has_a_line_for_each_cpu() {
    let _machine = machine(CPUS);
    pretend_cpus(300);
    let (cpus, shared) = Stripes::advised();
    // Without restartable sequences, all lines are shared.
    assert!((cpus, shared) == (300, 8) || cpus == 0 && shared <= 64, "{cpus} + {shared}");
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri)))]
mod cpus {
    use std::arch::asm;
    use std::sync::atomic::{AtomicIsize, Ordering};

    use super::*;

    /// Writes the number of a CPU into the C library's area for restartable sequences, and calls
    /// `work`. When the thread loses its CPU, the kernel writes the real number, and `work` is
    /// called again. Returns the number of calls; `None` without such an area.
    fn pretend_to_be_on(cpu: u32, work: impl Fn()) -> Option<u64> {
        // SAFETY: the calls look up a data object, an integer.
        let offset = unsafe {
            let found = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
            let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr());
            if found.is_null() || size.is_null() || size.cast::<u32>().read() == 0 {
                return None;
            }
            (*found.cast::<AtomicIsize>()).load(Ordering::Relaxed)
        };
        let pointer: isize;
        // SAFETY: the first word that fs addresses is the thread pointer itself.
        unsafe { asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly)) };
        let area = (pointer + offset + 4) as *mut u32;
        for calls in 1..1000 {
            // SAFETY: this is cpu_id of the thread's area, which only the kernel writes otherwise.
            let real = unsafe { area.read_volatile() };
            // SAFETY: as above. A sequence now adds to the lane of a CPU where other threads can
            // run, but none of these uses the segment. This is also true if this thread is moved to
            // another CPU before the last write below, and uses an old number for a while.
            unsafe { area.write_volatile(cpu) };
            work();
            // SAFETY: as above.
            let after = unsafe { area.read_volatile() };
            // SAFETY: as above.
            unsafe { area.write_volatile(real) };
            if after == cpu {
                return Some(calls);
            }
        }
        panic!("the thread never stayed on its CPU");
    }

    #[test]
    fn additions_on_any_cpu_count_once() {
        let _machine = machine(CPUS);
        // Up to 16, the first lanes belong to CPUs.
        for count in [2, 4, 16, 65, 128, 1024] {
            pretend_cpus(count);
            let segment = Segment::private(64 << 20).unwrap();
            let hits = family(&segment, "hits", 18);
            let mut calls = 0;
            for striped in [false, true] {
                if striped {
                    hits.stripe();
                }
                // The last ones own no lane.
                let last = count as u32 - 1;
                for cpu in [0, 1, 63, 64, 127, 1023, 1024, 5000, last, last + 1] {
                    let Some(more) = pretend_to_be_on(cpu, || add(&hits, 3, 2)) else { return };
                    calls += more;
                    let expected = (2 * calls, 2.0 * calls as f64, calls);
                    assert_eq!(read(&hits, 3), Some(expected), "CPU {cpu} of {count}");
                }
            }
        }
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod files {
    use std::path::Path;

    use quipu_segment::inspect::Inspection;
    use quipu_segment::{Options, Readings};

    use super::common::{Child, in_memory};
    use super::*;

    fn open(path: &Path) -> Segment {
        Options::new().limit(16 << 20).shared().open_or_create(path).unwrap()
    }

    /// Returns the sums of all series, found by a reader of the file that does not open it.
    fn inspected(path: &Path) -> Vec<(u64, u64, f64, u64)> {
        let mut all = Vec::new();
        for copy in [false, true] {
            let found =
                if copy { Inspection::of_copy(path, u64::MAX) } else { Inspection::of_file(path) };
            let inspection = found.unwrap();
            let report = inspection.report();
            assert!(report.damage.is_empty(), "{:?}", report.damage);
            let mut found = Vec::new();
            for family in &report.families {
                inspection.series(family, |series| {
                    let sums = series.cells;
                    found.push((series.id, sums[0], f64::from_bits(sums[1]), sums[2]));
                });
            }
            if copy {
                assert_eq!(all, found);
            }
            all = found;
        }
        all
    }

    #[test]
    fn processes_see_the_lanes_that_others_earned() {
        let _machine = machine(CPUS);
        let directory = in_memory();
        let path = directory.path().join("shared.quipu");
        let mine = family(&open(&path), "hits", 400);
        let other = family(&open(&path), "hits", 400);
        for kind in [0, 200, 399] {
            add(&mine, kind, 1);
        }
        other.stripe();
        for kind in [0, 200, 399] {
            add(&other, kind, 2);
            assert_eq!(read(&mine, kind), Some((3, 3.0, 2)));
            add(&mine, kind, 4);
            assert_eq!(read(&other, kind), Some((7, 7.0, 3)));
        }
        let all = [(0, 7, 7.0, 3), (200, 7, 7.0, 3), (399, 7, 7.0, 3)];
        assert_eq!(inspected(&path), all);
    }

    #[test]
    fn a_file_counts_on_when_the_number_of_cpus_changes() {
        let _machine = machine(CPUS);
        let directory = in_memory();
        let path = directory.path().join("moved.quipu");
        let mut sum = 0;
        for cpus in [1, 2, 4, 128, 2, 300, 64, 1] {
            pretend_cpus(cpus);
            let segment = open(&path);
            let hits = family(&segment, "hits", 400);
            let before = read(&hits, 300).map_or(0, |(sum, ..)| sum);
            assert_eq!(before, sum, "with {cpus} CPUs");
            add(&hits, 300, 1);
            hits.stripe();
            add(&hits, 300, 2);
            sum += 3;
            assert_eq!(read(&hits, 300).unwrap().0, sum, "with {cpus} CPUs");
            segment.close().unwrap();
        }
        assert_eq!(inspected(&path)[0].1, sum);
    }

    #[test]
    fn kills_while_slabs_earn_lanes_lose_nothing_and_double_nothing() {
        let _machine = machine(CPUS);
        let directory = in_memory();
        for round in 0..40_u32 {
            let path = directory.path().join(format!("{round}.quipu"));
            let segment = open(&path);
            // Both count the same additions; the second one seldom earns lanes.
            let (many, one) = (family(&segment, "many", 400), family(&segment, "one", 1));
            let children: Vec<_> = (0..4)
                .map(|child| {
                    let path = path.clone();
                    Child::start(move || {
                        let segment = open(&path);
                        let many = family(&segment, "many", 400);
                        let one = family(&segment, "one", 1);
                        for i in 0_u64.. {
                            many.add(|key| key.index(i as u32 % 400, 400), 0, 1);
                            one.add(|key| key.index(0, 1), 0, 1);
                            if i == u64::from(round * (child + 1)) * 16 {
                                many.stripe();
                            }
                        }
                        true
                    })
                })
                .collect();
            let counted = || read(&one, 0).map_or(0, |(sum, ..)| sum);
            while counted() < u64::from(round) * 500 && children.iter().any(Child::is_alive) {
                std::thread::yield_now();
            }
            children.into_iter().for_each(Child::kill);
            let in_lanes = |family: &Family| walk(family).iter().map(|(_, n, ..)| n).sum::<u64>();
            let sums = [in_lanes(&many), in_lanes(&one)];
            // Each process was killed before, between or after two additions.
            assert!((sums[1]..=sums[1] + 4).contains(&sums[0]), "{sums:?}");
            drop((many, one, segment));
            let again = Options::new().open_or_create(&path).unwrap();
            assert_eq!(in_lanes(&family(&again, "many", 400)), sums[0]);
        }
    }

    #[test]
    fn damaged_words_of_slabs_reach_nothing() {
        let _machine = machine(CPUS);
        let directory = in_memory();
        let path = directory.path().join("hostile.quipu");
        let hits = family(&open(&path), "hits", 18);
        add(&hits, 3, 5);
        let bytes = std::fs::read(&path).unwrap();
        // Lanes outside of the file, no lanes, no shared lane, and a lane that is the header.
        let layout = |first: u64, cpus: u64, lanes: u64| first | cpus << 32 | lanes << 48;
        let words = [u64::MAX, 1, layout(1 << 31, 1, 2), layout(64, 3, 3), layout(64, 9, 2)];
        for at in (0..bytes.len()).step_by(8).filter(|&at| is_slab_word(&path, at as u64)) {
            for word in words {
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, &word.to_le_bytes(), at as u64)
                    .unwrap();
                let segment = open(&path);
                let again = family(&segment, "hits", 18);
                let used = segment.used();
                again.stripe();
                assert_eq!(segment.used(), used, "no words are taken for lanes in vain");
                add(&again, 4, 1);
                assert_eq!(read(&again, 3), Some((5, 5.0, 1)));
                let inspection = Inspection::of_file(&path).unwrap();
                let report = inspection.report();
                assert!(!report.damage.is_empty());
                inspection.series(&report.families[0], |series| {
                    assert!(series.id != 3 || series.cells == [5, 5.0_f64.to_bits(), 1]);
                });
            }
        }
    }

    /// Returns whether a word of the file states the lanes of the only slab: this word changes when
    /// the slab of a copy earns them.
    fn is_slab_word(path: &Path, at: u64) -> bool {
        use std::sync::OnceLock;
        static WORD: OnceLock<u64> = OnceLock::new();
        let found = WORD.get_or_init(|| {
            let copy = path.with_extension("copy");
            let before = std::fs::read(path).unwrap();
            std::fs::write(&copy, &before).unwrap();
            let segment = open(&copy);
            let opened = std::fs::read(&copy).unwrap();
            family(&segment, "hits", 18).stripe();
            let after = std::fs::read(&copy).unwrap();
            let words = |bytes: &[u8]| bytes.as_chunks::<8>().0.to_vec();
            let (opened, after) = (words(&opened), words(&after));
            let lanes = |word: &[u8; 8]| u64::from_le_bytes(*word) >> 32 == 128 | 136 << 16;
            let changed = |at: &usize| opened.get(*at) != after.get(*at) && lanes(&after[*at]);
            (0..after.len()).find(changed).unwrap() as u64 * 8
        });
        *found == at
    }

    const CURSOR: u64 = 72;

    /// Opens a file in a boot of the machine.
    fn open_in_boot(path: &Path, boot: u8) -> Result<Segment, quipu_segment::Error> {
        let time = std::time::Duration::from_secs(1000);
        let readings = Readings { boot: [boot; 16], since_boot: time, wall: time * 2 };
        Options::new().readings(readings).open_or_create(path)
    }

    fn set_cursor(path: &Path, cursor: u64) {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &cursor.to_le_bytes(), CURSOR).unwrap();
    }

    #[test]
    fn a_power_loss_that_sets_back_the_words_in_use_takes_the_lanes_beyond() {
        let _machine = machine(CPUS);
        let directory = in_memory();
        let path = directory.path().join("lost.quipu");
        let segment = open_in_boot(&path, 1).unwrap();
        let hits = family(&segment, "hits", 18);
        add(&hits, 3, 5);
        let cursor = segment.used();
        hits.stripe();
        add(&hits, 3, 7);
        drop((hits, segment));
        set_cursor(&path, cursor);
        let segment = open_in_boot(&path, 2).unwrap();
        assert!(segment.may_have_lost_power());
        let hits = family(&segment, "hits", 18);
        assert_eq!(read(&hits, 3), Some((5, 5.0, 1)));
        // The lanes are earned again, at words that no other family owns.
        let others = family(&segment, "others", 18);
        add(&others, 1, 1);
        hits.stripe();
        add(&hits, 3, 1);
        others.stripe();
        add(&others, 1, 1);
        assert_eq!(read(&hits, 3), Some((6, 6.0, 2)));
        assert_eq!(read(&others, 1), Some((2, 2.0, 2)));
    }

    #[test]
    fn lanes_that_a_power_loss_takes_leave_no_sum_below_zero() {
        let _machine = machine(CPUS);
        let directory = in_memory();
        let path = directory.path().join("reset.quipu");
        let segment = open_in_boot(&path, 1).unwrap();
        let hits = family(&segment, "hits", 400);
        // The last one is in another slab.
        let kinds = [3, 4, 5, 399];
        kinds.iter().for_each(|&kind| add(&hits, kind, 5));
        let cursor = segment.used();
        hits.stripe();
        kinds.iter().for_each(|&kind| add(&hits, kind, 1000));
        for kind in [3, 399] {
            let _ = hits.remove(|key| key.index(kind, 400)).unwrap();
        }
        add(&hits, 3, 7);
        drop((hits, segment));
        set_cursor(&path, cursor);
        let segment = open_in_boot(&path, 2).unwrap();
        let hits = family(&segment, "hits", 400);
        let found = walk(&hits);
        assert_eq!(found, [(4, 5, 5.0, 1), (5, 5, 5.0, 1)]);
        kinds.iter().for_each(|&kind| add(&hits, kind, 2));
        assert_eq!(read(&hits, 3), Some((2, 2.0, 1)));
        assert_eq!(read(&hits, 4), Some((7, 7.0, 2)));
        assert_eq!(read(&hits, 399), Some((2, 2.0, 1)));
    }

    #[test]
    fn a_power_loss_that_takes_the_cells_of_a_family_with_lanes_gives_them_to_no_other() {
        let _machine = machine(CPUS);
        let directory = in_memory();
        let path = directory.path().join("cut.quipu");
        let segment = open_in_boot(&path, 1).unwrap();
        let begin = segment.used();
        let hits = family(&segment, "hits", 100);
        let end = segment.used();
        add(&hits, 3, 5);
        hits.stripe();
        drop((hits, segment));
        let bytes = std::fs::read(&path).unwrap();
        for cursor in (begin..=end).step_by(64) {
            std::fs::write(&path, &bytes).unwrap();
            set_cursor(&path, cursor);
            let Ok(segment) = open_in_boot(&path, 2) else { continue };
            let (hits, others) = (family(&segment, "hits", 100), family(&segment, "others", 100));
            let before = walk(&hits);
            (0..100).for_each(|kind| add(&others, kind, 1));
            assert_eq!(walk(&hits), before, "cut at {cursor} of {begin} to {end}");
        }
    }
}
