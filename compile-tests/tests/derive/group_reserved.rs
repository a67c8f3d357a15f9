use quipu::LabelGroup;

#[derive(LabelGroup)]
struct Labels {
    le: bool,
}

#[derive(LabelGroup)]
struct Others {
    __name: bool,
    #[label(rename = "quantile")]
    part: bool,
}

fn main() {}
