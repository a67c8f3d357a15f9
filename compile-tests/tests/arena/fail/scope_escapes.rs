use quipu_arena::Arena;

fn main() {
    let mut arena = Arena::new();
    let mut kept = None;
    arena.scoped(|scope| kept = Some(scope));
    drop(kept);
}
