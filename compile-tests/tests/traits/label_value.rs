use quipu::{LabelGroup, counter};

struct Version;

#[derive(LabelGroup)]
struct Labels {
    version: Version,
}

fn main() {
    counter!("starts", "Starts.", "version" => Version).inc();
    counter!("ratios", "Ratios.", "ratio" => 0.5).inc();
}
