//! Allocations of a `u64` by several threads at the same time.
//!
//! A round is 2^20 allocations per thread. Between rounds, after the threads have ended, everything
//! is freed, which is not timed. A thread acquires and returns its own resources within its time.
//! The chunks are large enough for a round, and earlier rounds touched all pages. Each thread is
//! pinned to a core. Under a lock, a value is allocated and discarded when the lock is released.
//! The heap frees each value immediately; `kept` frees 10,000 at a time.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use blink_alloc::{Blink, SyncBlinkAlloc};
use bump_scope::BumpPool;
use quipu_arena::{Arena, Pool, SharedArena};

use super::library::{BlinkAlloc, BumpScopeUp, Bumpalo, Library};
use super::{MALLOC, WARMUP_ROUNDS, per_operation};
use crate::measure::{Case, Options, black_box, on_cores};
use crate::record::Record;

/// The number of allocations of a thread between two resets.
const VALUES: usize = 1 << 20;

/// Twice the bytes that two threads allocate, because an arena can need more than 8 bytes per
/// value.
const ROOM: usize = 2 * 2 * 8 * VALUES;

/// The number of values that the variant `kept` of the heap keeps.
const KEPT: usize = 10_000;

pub(super) fn run(options: &Options) -> Vec<Record> {
    [1, 2].into_iter().flat_map(|threads| per_operation(VALUES, on(threads, options))).collect()
}

fn on(threads: usize, options: &Options) -> Vec<Record> {
    let case = Case::new("arena/shared u64").threads(threads);
    add_malloc(add_peers(add_ours(case))).run(options)
}

fn add_ours(case: Case<'_>) -> Case<'_> {
    let case = add(
        case,
        "quipu",
        SharedArena::with_size(ROOM),
        |arena| each(|value| arena.alloc(value)),
        |arena| arena.reset(),
    );
    let case = add(
        case,
        "quipu (batch a thread)",
        SharedArena::with_size(ROOM),
        |arena| {
            let batch = arena.batch();
            each(|value| batch.alloc(value));
        },
        |arena| arena.reset(),
    );
    let case = add(
        case,
        "quipu (pool)",
        Pool::new(),
        |pool| {
            let arena = pool.get();
            each(|value| arena.alloc(value));
        },
        // The arenas were reset when they were returned.
        |_| {},
    );
    add(
        case,
        "quipu (mutex)",
        Mutex::new(Arena::with_size(ROOM)),
        |arena| locked(arena, |arena, value| black_box(arena.alloc(value)) as *const u64),
        |arena| exclusive(arena).reset(),
    )
}

fn add_peers(case: Case<'_>) -> Case<'_> {
    let (blink, bump_scope) = (BlinkAlloc::name(), BumpScopeUp::name());
    let case = add(
        case,
        &blink,
        SyncBlinkAlloc::with_chunk_size_in(ROOM, allocator_api2::alloc::Global),
        |shared| {
            let blink = Blink::new_in(shared);
            each(|value| blink.put_no_drop(value));
        },
        |shared| shared.reset(),
    );
    let case = add(
        case,
        &format!("{blink} (local)"),
        SyncBlinkAlloc::with_chunk_size_in(ROOM, allocator_api2::alloc::Global),
        |shared| {
            let blink = Blink::new_in(shared.local());
            each(|value| blink.put_no_drop(value));
        },
        |shared| shared.reset(),
    );
    let case = add(
        case,
        &format!("{bump_scope} (pool)"),
        <BumpPool>::new(),
        |pool| {
            let bump = pool.get();
            each(|value| bump.alloc(value).into_mut());
        },
        |pool| pool.reset(),
    );
    add(
        case,
        &format!("{} (mutex)", Bumpalo::name()),
        Mutex::new(Bumpalo::with_capacity(ROOM)),
        |arena| locked(arena, |arena, value| black_box(arena.alloc(value)) as *const u64),
        |arena| exclusive(arena).reset(),
    )
}

fn add_malloc(case: Case<'_>) -> Case<'_> {
    let case = add(case, MALLOC, (), |()| each(Box::new), |()| ());
    add(
        case,
        "malloc (kept)",
        (),
        |()| {
            let mut kept = Vec::with_capacity(KEPT);
            for value in 0..VALUES as u64 {
                if kept.len() == KEPT {
                    kept.clear();
                }
                kept.push(Box::new(black_box(value)));
            }
            black_box(kept);
        },
        |()| (),
    )
}

/// Adds a subject: the state that its threads share, the work of each in a round, and the reset.
fn add<'a, S: Sync + 'a>(
    case: Case<'a>,
    subject: &str,
    mut shared: S,
    round: impl Fn(&S) + Sync + 'a,
    reset: impl Fn(&mut S) + 'a,
) -> Case<'a> {
    let mut before = WARMUP_ROUNDS;
    case.timed(subject, move |threads, n| {
        let mut elapsed = Duration::ZERO;
        for _ in 0..std::mem::take(&mut before) {
            on_cores(threads, |_| round(&shared));
            reset(&mut shared);
        }
        for _ in 0..n {
            elapsed += on_cores(threads, |_| round(&shared));
            reset(&mut shared);
        }
        elapsed
    })
}

/// Calls for each value of a round.
#[inline(always)]
fn each<R>(alloc: impl Fn(u64) -> R) {
    for value in 0..VALUES as u64 {
        black_box(alloc(black_box(value)));
    }
}

/// Calls for each value of a round, each time under the lock.
#[inline(always)]
fn locked<A>(arena: &Mutex<A>, alloc: impl Fn(&A, u64) -> *const u64) {
    // No code panics under the lock.
    each(|value| alloc(&arena.lock().unwrap_or_else(PoisonError::into_inner), value));
}

fn exclusive<A>(arena: &mut Mutex<A>) -> &mut A {
    arena.get_mut().unwrap_or_else(PoisonError::into_inner)
}
