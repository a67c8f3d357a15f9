use std::mem::MaybeUninit;
use quipu_arena::{Arena, InBuffer, Up};

fn main() {
    let arena = {
        let mut buffer = [MaybeUninit::uninit(); 256];
        Arena::<Up, InBuffer>::in_buffer(&mut buffer)
    };
    arena.alloc(1);
}
