use quipu_arena::{Arena, ArenaVec};

fn main() {
    let mut arena = Arena::new();
    let mut outer = arena.as_scope();
    let mut vec = ArenaVec::new_in(&outer);
    outer.scoped(|inner| vec.push(*inner.alloc(1)));
}
