use quipu::{Counter, Family, LabelGroup};

#[derive(LabelGroup)]
struct Labels {
    status: u16,
}

struct Server {
    responses: Family<Labels, Counter>,
}

fn main() {}
