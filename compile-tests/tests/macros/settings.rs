use quipu::{counter, histogram};

fn main() {
    counter!("hidden_setting", "Jobs.", verbatim).inc();
    counter!("setting_of_a_summary", "Jobs.", quantiles = [0.5]).inc();
    histogram!("misspelled_setting", "Sizes.", bucket = [1.0], "a" => 1).observe(1.0);
}
