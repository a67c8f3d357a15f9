use quipu_arena::Arena;

fn main() {
    let mut arena = Arena::new();
    let mut guard = arena.guard();
    let kept = guard.scope().alloc(1);
    guard.reset();
    println!("{kept}");
}
