use quipu::LabelValue;

#[derive(LabelValue)]
enum Code {
    #[label(name = "fine")]
    Ok,
}

fn main() {}
