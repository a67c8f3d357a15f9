use quipu_arena::SharedArena;

fn main() {
    let arena = SharedArena::new();
    let batch = arena.batch();
    std::thread::scope(|threads| {
        threads.spawn(|| *batch.alloc(1));
    });
}
