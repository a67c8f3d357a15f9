//! Must compile: using the outer scope's values while an inner one is open, and a batch's after it.

use quipu_arena::{Arena, ArenaBox, ArenaVec, Scope, SharedArena};

fn main() {
    let mut arena = Arena::new();
    let mut outer = arena.as_scope();
    let kept = outer.alloc(1);
    let slice = {
        let mut vec = ArenaVec::new_in(&outer);
        vec.push(2);
        vec.into_slice()
    };
    outer.scoped(|inner| *kept += *inner.alloc(3) + slice[0]);
    assert_eq!(*kept, 6);

    // A tree whose vectors are in a scope, and a scope that is used as one with a shorter lifetime.
    enum Tree<'s, 'a> {
        Leaf(i32),
        Many(ArenaVec<'a, Tree<'s, 'a>, &'s Scope<'a>>),
    }
    fn sum(tree: &Tree<'_, '_>) -> i32 {
        match tree {
            Tree::Leaf(n) => *n,
            Tree::Many(trees) => trees.iter().map(sum).sum(),
        }
    }
    fn grow<'a>(scope: &'a Scope<'a>) -> Tree<'a, 'a> {
        let mut trees = ArenaVec::new_in(scope);
        trees.push(Tree::Leaf(3));
        trees.push(Tree::Many(ArenaVec::new_in(scope)));
        Tree::Many(trees)
    }
    fn shorter<'b, 'a: 'b>(boxed: ArenaBox<'a, &'a str>) -> ArenaBox<'b, &'b str> {
        boxed
    }
    assert_eq!(outer.scoped(|scope| sum(&grow(&scope))), 3);
    assert_eq!(outer.scoped(|scope| shorter(scope.alloc_box("text")).len()), 4);

    let shared = SharedArena::new();
    let text = std::thread::scope(|threads| {
        let batch = shared.batch();
        threads.spawn(move || batch.alloc_str("sent")).join().unwrap()
    });
    assert_eq!(text, "sent");
}
