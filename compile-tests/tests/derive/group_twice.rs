use quipu::LabelGroup;

#[derive(LabelGroup)]
struct Labels {
    kind: bool,
    #[label(rename = "kind")]
    sort: bool,
}

fn main() {}
