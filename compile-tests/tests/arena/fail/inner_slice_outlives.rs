use quipu_arena::{Arena, ArenaVec};

fn main() {
    let mut arena = Arena::new();
    let mut outer = arena.as_scope();
    let kept = outer.scoped(|inner| {
        let mut vec = ArenaVec::new_in(&inner);
        vec.push(1);
        vec.into_slice()
    });
    println!("{kept:?}");
}
