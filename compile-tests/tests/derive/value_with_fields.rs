use quipu::LabelValue;

#[derive(LabelValue)]
enum Status {
    Ok,
    Failed(u16),
}

fn main() {}
