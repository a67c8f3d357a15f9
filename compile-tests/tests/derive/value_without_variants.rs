use quipu::LabelValue;

#[derive(LabelValue)]
enum Nothing {}

fn main() {}
