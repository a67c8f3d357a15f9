use quipu::LabelValue;

#[derive(LabelValue)]
#[label(rename_all = "Snake")]
enum Code {
    Ok,
}

fn main() {}
