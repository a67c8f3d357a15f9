use quipu::LabelValue;

#[derive(LabelValue)]
enum Code {
    Ok,
    #[label(rename = "ok")]
    Fine,
}

fn main() {}
