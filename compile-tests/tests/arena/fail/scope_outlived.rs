use quipu_arena::Arena;

fn main() {
    let mut arena = Arena::new();
    let kept = arena.scoped(|scope| scope.alloc(1));
    println!("{kept}");
}
