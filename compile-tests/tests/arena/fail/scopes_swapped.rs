use quipu_arena::Arena;

fn main() {
    let (mut a, mut b) = (Arena::new(), Arena::new());
    a.scoped(|mut a| b.scoped(|mut b| std::mem::swap(&mut a, &mut b)));
}
