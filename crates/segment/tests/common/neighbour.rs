//! Simulates a hostile neighbour: a process that uses the same file and writes invalid words into
//! it, while this one counts, removes, scrapes and registers. None of its stores may end this
//! process, or delay it for long.
//!
//! A program is a string of bytes: which words to change, and the operations in between. The tests
//! and the fuzz target run the same programs.

#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quipu_segment::clock::TestClock;
use quipu_segment::series::{Cursor, Family, Label, Schema, SeriesHandle};
use quipu_segment::{Options, Segment};

const START: u64 = 1_700_000_000_000_000_000;
const LIMIT: u64 = 1 << 20;

/// A file with some families. Each program begins with this file.
pub(crate) struct World {
    image: Vec<u8>,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// Creates the file.
    pub(crate) fn new() -> Self {
        let directory = directory();
        let path = directory.path().join("image");
        let segment = options().open_or_create(&path).unwrap();
        let clock = TestClock::from_nanos(START);
        for family in families(&segment, &clock) {
            (0..9).for_each(|i| add(&family, i));
        }
        drop(segment);
        Self { image: std::fs::read(&path).unwrap() }
    }

    /// Runs a program. `also` is called as one of the operations.
    pub(crate) fn run(&self, program: &[u8], also: &mut dyn FnMut(&Segment)) {
        let directory = directory();
        let path = directory.path().join("segment");
        std::fs::write(&path, &self.image).unwrap();
        let mut program = Program(program);
        let is_at_once = program.byte() & 1 == 1;
        let segment = options().open_or_create(&path).unwrap();
        let clock = TestClock::from_nanos(START);
        let families = families(&segment, &clock);
        let bound: Vec<SeriesHandle> =
            families.iter().map(|f| f.bind(|key| key.text("0"))).collect();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let token = segment.process().unwrap();
        if !is_at_once {
            while !program.0.is_empty() {
                poke(&file, &mut program, token);
                act(&mut program, &segment, &clock, &families, &bound, also);
            }
            return;
        }
        // One half is written over and over, while the other half is executed.
        let (pokes, acts) = program.0.split_at(program.0.len() / 2);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut pokes_left = Program(pokes);
                while !is_over.load(Ordering::Relaxed) {
                    if pokes_left.0.is_empty() {
                        pokes_left = Program(pokes);
                    }
                    poke(&file, &mut pokes_left, token);
                }
            });
            let over = Over(&is_over);
            let mut acts = Program(acts);
            while !acts.0.is_empty() {
                act(&mut acts, &segment, &clock, &families, &bound, also);
            }
            drop(over);
        });
    }
}

/// Ends the other thread if this one panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns a directory in memory, if the system provides one.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

fn options() -> Options {
    Options::new().limit(LIMIT).shared()
}

/// Returns a family of each layout.
fn families(segment: &Segment, clock: &TestClock) -> Vec<Family> {
    let fixed =
        Label { name: "kind".into(), values: Some((0..9_u32).map(|i| i.to_string()).collect()) };
    let text = Label { name: "user".into(), values: None };
    let schema = |name: &str, cells, labels: &[&Label]| Schema {
        name: name.into(),
        cells,
        additive: true,
        labels: labels.iter().map(|&label| label.clone()).collect(),
        ..Schema::default()
    };
    let idle = Some(Duration::from_secs(1));
    let all = [
        schema("dense", 2, &[&fixed]),
        schema("keyed", 2, &[&text]),
        Schema { limit: Some(12), idle, ..schema("hiding", 1, &[&text]) },
        Schema { additive: false, idle, ..schema("expiring", 3, &[&text]) },
    ];
    all.iter().map(|schema| segment.family_at(schema, clock.clone()).unwrap()).collect()
}

fn add(family: &Family, number: u8) {
    family.add(|key| key.text(&number.to_string()), 0, 1);
}

struct Program<'p>(&'p [u8]);

impl Program<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}

/// Changes one word, mostly one that is in use.
fn poke(file: &File, program: &mut Program<'_>, token: u64) {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap());
    let words = bytes.len() / 8;
    let in_use: Vec<usize> = (0..words).filter(|&at| word(at) != 0).collect();
    let pick = |program: &mut Program<'_>| match program.short() {
        number if number % 4 == 0 => usize::from(number / 4) % words,
        number => {
            // Or change a word after it, which can be a lock that is free.
            let behind = if number % 4 == 1 { usize::from(program.byte()) % 16 } else { 0 };
            // A repeated program may have cleared all words.
            let at = in_use.get(usize::from(number / 4) % in_use.len().max(1));
            at.map_or(0, |at| at + behind) % words
        }
    };
    let at = pick(program);
    let was = word(at);
    let value = match program.byte() % 12 {
        0 => 0,
        1 => u64::MAX,
        2 => program.byte().into(),
        3 => word(pick(program)),
        4 => pick(program) as u64,
        5 => pick(program) as u64 * 8,
        6 => was.wrapping_add(program.byte().into()),
        7 => was.wrapping_sub(program.byte().into()),
        8 => was ^ 1 << (program.byte() % 64),
        9 => was & 0xffff_ffff | u64::from(program.short()) << 32,
        10 => was >> 32 << 32 | u64::from(program.short()) << (program.byte() % 17),
        _ => u64::from(program.short()) << (program.byte() % 64),
    };
    // Clear this process's own token, because it would wait for itself as the owner of a lock.
    let is_own = value & (u64::MAX >> 26) == token;
    let value = if is_own { 0 } else { value };
    file.write_all_at(&value.to_le_bytes(), at as u64 * 8).unwrap();
}

fn act(
    program: &mut Program<'_>,
    segment: &Segment,
    clock: &TestClock,
    families: &[Family],
    bound: &[SeriesHandle],
    also: &mut dyn FnMut(&Segment),
) {
    let choice = program.byte();
    let number = program.byte();
    let family = &families[usize::from(number) % families.len()];
    match choice % 16 {
        0..=2 => add(family, number),
        3 => bound[usize::from(number) % bound.len()].cells().add(0, 1),
        4 => {
            let bound = family.bind(|key| key.text(&number.to_string()));
            bound.cells().add(0, 1);
            drop(bound.clone());
        }
        5 => drop(family.remove(|key| key.text(&number.to_string()))),
        6 => {
            clock.advance(Duration::from_secs(1));
            drop(family.sweep());
        }
        7 => drop(family.retain(|view| view.texts.len() % 3 != usize::from(number % 3))),
        8 => drop(family.reset()),
        9 | 10 => walk(family),
        11 => {
            family.read(|key| key.text(&number.to_string()), |cells| cells.sum(0));
            let _ = (family.len(), family.overflowed());
        }
        12 => side(family, number),
        13 => {
            let records = segment.records().take_while(Result::is_ok).count() as u64;
            assert!(records * 64 <= LIMIT);
            assert!(segment.used() <= LIMIT && segment.size() <= LIMIT);
            if let Ok(families) = segment.families() {
                families.iter().for_each(walk);
            }
        }
        14 if number < 64 => {
            let labels = vec![Label { name: "l".into(), values: None }];
            let name = format!("family_{}", number % 4);
            let schema = Schema { name, cells: 1, labels, ..Schema::default() };
            if let Ok(family) = segment.family_at(&schema, clock.clone()) {
                add(&family, number);
            }
        }
        _ => also(segment),
    }
}

/// Reads all series that a family shows: no more than fit into the file.
fn walk(family: &Family) {
    let (mut cursor, mut buffer, mut count) = (Cursor::default(), Vec::new(), 0_u64);
    let _ = family.walk(&mut cursor, &mut buffer, |view| {
        assert!(view.overflow || view.group < family.groups());
        (0..view.cells.len()).for_each(|cell| {
            view.cells.sum(cell);
            view.cells.sum_float(cell);
        });
        count += 1;
        ControlFlow::Continue(())
    });
    assert!(count * 8 <= LIMIT, "a walk showed {count} series");
}

/// Keeps the offset of a side allocation in the last cell of a series.
fn side(family: &Family, number: u8) {
    let cell = usize::from(family.schema().cells) - 1;
    let Ok(Some(cells)) = family.find(|key| key.text(&number.to_string())) else { return };
    let known = u32::try_from(cells.plain(cell).load(Ordering::Relaxed)).unwrap_or(0);
    let at = match family.side(&cells, known) {
        Some(_) => known,
        None => match family.allocate_side(&cells, u16::from(number), 9) {
            Ok(at) => at,
            Err(_) => return,
        },
    };
    cells.plain(cell).store(at.into(), Ordering::Relaxed);
    let Some(side) = family.side(&cells, at) else { return };
    side.words().iter().for_each(|word| word.store(1, Ordering::Relaxed));
    if let Some(cells) = side.cells() {
        (0..cells.len()).for_each(|cell| cells.add(cell, 1));
    }
}
