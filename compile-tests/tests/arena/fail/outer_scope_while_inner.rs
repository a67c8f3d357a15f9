use quipu_arena::Arena;

fn main() {
    let mut arena = Arena::new();
    let mut outer = arena.as_scope();
    outer.scoped(|inner| {
        inner.alloc(1);
        outer.alloc(2);
    });
}
