//! Code with `#[timed]` compiles without warnings.
#![deny(warnings)]

use quipu::timed;

// On one line, because the lint `unused_braces` ignores blocks of several lines.
#[rustfmt::skip]
#[timed("one_expression_seconds", "Duration.")]
fn one_expression(n: u32) -> u32 { n + 1 }

#[timed("one_block_seconds", "Duration.")]
fn one_block(n: u32) -> u32 {
    if n > 1 { one_expression(n) } else { 0 }
}

#[timed("no_value_seconds", "Duration.")]
fn no_value() {}

#[timed("statements_seconds", "Duration.")]
fn statements() -> u32 {
    let n = one_block(2);
    n + 1
}

#[timed("async_seconds", "Duration.")]
async fn async_expression(n: u32) -> u32 {
    n
}

fn main() {
    no_value();
    assert_eq!(statements(), 4);
    drop(async_expression(1));
}
