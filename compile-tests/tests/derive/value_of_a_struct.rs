use quipu::LabelValue;

#[derive(LabelValue)]
struct User {
    name: String,
}

fn main() {}
