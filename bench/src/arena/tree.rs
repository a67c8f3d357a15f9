//! A syntax tree of a million nodes: it is parsed from tokens in prefix order, evaluated once, and
//! freed. Names are copied, because a source that is read in pieces requires this.
//!
//! The tree on the heap is the tree that you would write: boxes, strings, and a vector that owns
//! the arguments instead of referring to them.

use std::slice;

use super::data::{NAMES, Random};
use super::library::{Library, Vector};
use super::{MALLOC, Round, per_operation, with_libraries};
use crate::measure::{Case, Options, black_box};
use crate::record::Record;

/// The number of nodes of the tree.
const NODES: usize = 1_000_000;

pub(super) fn run(options: &Options) -> Vec<Record> {
    let source = Source(tokens(NODES));
    let records = with_libraries(Case::new("arena/syntax tree"), &source)
        .each(MALLOC, || {
            let tree = owned(&mut source.0.iter());
            black_box(owned_value(&tree));
        })
        .run(options);
    per_operation(NODES, records)
}

struct Source(Vec<Token>);

impl Round for Source {
    const ROOM: usize = 96 * NODES;

    fn round<L: Library>(&self, arena: &mut L) {
        let tree = parse(arena, &mut self.0.iter());
        black_box(value(tree));
        arena.reset();
    }
}

#[derive(Clone, Copy)]
enum Token {
    Number(f64),
    Name(&'static str),
    Binary(Operator),
    Call(&'static str, u8),
}

#[derive(Clone, Copy)]
enum Operator {
    Add,
    Subtract,
    Least,
    Greatest,
}

impl Operator {
    fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Operator::Add => left + right,
            Operator::Subtract => left - right,
            Operator::Least => left.min(right),
            Operator::Greatest => left.max(right),
        }
    }
}

/// The tree in an arena.
#[derive(Clone, Copy)]
enum Expression<'a> {
    Number(f64),
    Name(&'a str),
    Binary(Operator, &'a Expression<'a>, &'a Expression<'a>),
    Call(&'a str, &'a [&'a Expression<'a>]),
}

/// The tree on the heap.
enum Owned {
    Number(f64),
    Name(String),
    Binary(Operator, Box<Owned>, Box<Owned>),
    Call(String, Vec<Owned>),
}

fn parse<'a, L: Library>(arena: &'a L, tokens: &mut slice::Iter<'_, Token>) -> &'a Expression<'a> {
    let expression = match *tokens.next().expect("a source has all tokens of its tree") {
        Token::Number(number) => Expression::Number(number),
        Token::Name(name) => Expression::Name(arena.text(name)),
        Token::Binary(operator) => {
            let left = parse(arena, tokens);
            Expression::Binary(operator, left, parse(arena, tokens))
        }
        Token::Call(name, count) => {
            let name = arena.text(name);
            let mut arguments = arena.vector(count.into());
            for _ in 0..count {
                arguments.push(parse(arena, tokens));
            }
            Expression::Call(name, arguments.finish())
        }
    };
    arena.value(expression)
}

fn owned(tokens: &mut slice::Iter<'_, Token>) -> Owned {
    match *tokens.next().expect("a source has all tokens of its tree") {
        Token::Number(number) => Owned::Number(number),
        Token::Name(name) => Owned::Name(name.to_owned()),
        Token::Binary(operator) => {
            let left = Box::new(owned(tokens));
            Owned::Binary(operator, left, Box::new(owned(tokens)))
        }
        Token::Call(name, count) => {
            let name = name.to_owned();
            let mut arguments = Vec::with_capacity(count.into());
            for _ in 0..count {
                arguments.push(owned(tokens));
            }
            Owned::Call(name, arguments)
        }
    }
}

fn value(expression: &Expression<'_>) -> f64 {
    match *expression {
        Expression::Number(number) => number,
        Expression::Name(name) => name.len() as f64,
        Expression::Binary(operator, left, right) => operator.apply(value(left), value(right)),
        Expression::Call(name, arguments) => {
            name.len() as f64 + arguments.iter().map(|argument| value(argument)).sum::<f64>()
        }
    }
}

fn owned_value(expression: &Owned) -> f64 {
    match expression {
        Owned::Number(number) => *number,
        Owned::Name(name) => name.len() as f64,
        Owned::Binary(operator, left, right) => {
            operator.apply(owned_value(left), owned_value(right))
        }
        Owned::Call(name, arguments) => {
            name.len() as f64 + arguments.iter().map(owned_value).sum::<f64>()
        }
    }
}

/// The tokens of a tree with this number of nodes. Three of ten inner nodes are calls with one to
/// four arguments.
fn tokens(nodes: usize) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(nodes);
    grow(nodes, &mut Random::new(), &mut tokens);
    tokens
}

fn grow(nodes: usize, random: &mut Random, tokens: &mut Vec<Token>) {
    let below = nodes - 1;
    if below == 0 {
        tokens.push(match random.below(2) {
            0 => Token::Number(random.below(1000) as f64),
            _ => Token::Name(random.of(NAMES)),
        });
        return;
    }
    let call = below == 1 || random.below(10) < 3;
    let children = if call { (1 + random.below(4)).min(below) } else { 2 };
    tokens.push(if call {
        Token::Call(random.of(NAMES), children as u8)
    } else {
        let operators = [Operator::Add, Operator::Subtract, Operator::Least, Operator::Greatest];
        Token::Binary(operators[random.below(4)])
    });
    let mut left = below;
    for later in (0..children).rev() {
        let part = if later == 0 { left } else { 1 + random.below(left - later) };
        grow(part, random, tokens);
        left -= part;
    }
}

#[cfg(test)]
mod tests {
    use super::super::library::{BlinkAlloc, BumpScopeUp, Bumpalo, QuipuDown, QuipuUp};
    use super::*;

    #[test]
    fn every_tree_has_the_same_value() {
        let source = tokens(10_000);
        assert_eq!(source.len(), 10_000);
        let expected = owned_value(&owned(&mut source.iter()));
        assert!(expected.is_finite());
        assert_eq!(value(parse(&QuipuUp::new(), &mut source.iter())), expected);
        assert_eq!(
            value(parse(&QuipuDown::new_in(Default::default()), &mut source.iter())),
            expected
        );
        assert_eq!(value(parse(&BumpScopeUp::new(), &mut source.iter())), expected);
        assert_eq!(value(parse(&Bumpalo::new(), &mut source.iter())), expected);
        assert_eq!(value(parse(&BlinkAlloc::new(), &mut source.iter())), expected);
    }
}
