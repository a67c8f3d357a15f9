use quipu_arena::Arena;

fn main() {
    let arena = Arena::new();
    std::thread::scope(|threads| {
        threads.spawn(|| *arena.alloc(1));
    });
}
