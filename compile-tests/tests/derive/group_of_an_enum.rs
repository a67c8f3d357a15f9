use quipu::LabelGroup;

#[derive(LabelGroup)]
enum Labels {
    One,
}

fn main() {}
