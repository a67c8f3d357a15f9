//! The location of a panic is the caller's line. This is a separate test, because its hook sees all
//! panics of the process.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::{Mutex, mpsc};

use quipu_arena::{Arena, ArenaString, ArenaVec, Global, LimitedAllocator, SharedArena, Up};

#[test]
fn a_panic_is_at_the_caller() {
    let arena = Arena::<Up, _>::empty_in(LimitedAllocator::new(0, Global));
    let shared = SharedArena::new_in(LimitedAllocator::new(0, Global));
    let calls: [&dyn Fn(); 13] = [
        &|| _ = arena.alloc(1),
        &|| _ = arena.alloc_with(|| 1),
        &|| _ = arena.alloc_box(1),
        &|| _ = arena.alloc_str("text"),
        &|| _ = arena.alloc_slice_copy(&[1]),
        &|| _ = arena.alloc_slice_fill(3, 1),
        &|| _ = arena.alloc_iter([1, 2]),
        &|| _ = arena.alloc_fmt(format_args!("{}", 1)),
        &|| _ = arena.alloc_uninit::<u8>(),
        &|| ArenaVec::new_in(&arena).push(1),
        &|| ArenaString::new_in(&arena).push_str("text"),
        &|| _ = shared.alloc_str("text"),
        &|| _ = Arena::<Up, _>::new_in(LimitedAllocator::new(0, Global)),
    ];
    let (send, places) = mpsc::channel();
    let send = Mutex::new(send);
    set_hook(Box::new(move |info| {
        let file = info.location().map(|location| location.file().to_owned());
        send.lock().unwrap().send(file.unwrap_or_default()).unwrap();
    }));
    for (index, call) in calls.into_iter().enumerate() {
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
        let file = places.try_recv().unwrap();
        assert!(file.ends_with("panics.rs"), "call {index} panics in {file}");
    }
}
