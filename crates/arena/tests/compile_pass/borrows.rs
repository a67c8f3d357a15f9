//! What must compile: the outer scope's values while an inner one is open, and a batch's after it.

use quipu_arena::{Arena, ArenaVec, SharedArena};

fn main() {
    let mut arena = Arena::new();
    let mut outer = arena.as_scope();
    let kept = outer.alloc(1);
    let slice = {
        let mut vec = ArenaVec::new_in(&outer);
        vec.push(2);
        vec.into_slice()
    };
    outer.scoped(|inner| *kept += *inner.alloc(3) + slice[0]);
    assert_eq!(*kept, 6);

    let shared = SharedArena::new();
    let text = std::thread::scope(|threads| {
        let batch = shared.batch();
        threads.spawn(move || batch.alloc_str("sent")).join().unwrap()
    });
    assert_eq!(text, "sent");
}
