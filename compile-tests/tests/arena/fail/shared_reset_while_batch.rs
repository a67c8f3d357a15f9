use quipu_arena::SharedArena;

fn main() {
    let mut arena = SharedArena::new();
    let kept = arena.batch().alloc(1);
    arena.reset();
    println!("{kept}");
}
