use quipu_arena::Arena;

fn main() {
    let mut arena = Arena::new();
    let kept = arena.alloc(1);
    arena.reset();
    println!("{kept}");
}
