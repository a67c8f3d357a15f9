use quipu::{counter, gauge, histogram};

fn main() {
    counter!("without_help").inc();
    counter!("label_without_help", "method" => "GET").inc();
    counter!("setting_without_help", unit = "bytes").inc();
    gauge!("settings_last", "A level.", "room" => 1, unit = "celsius").set(21.0);
    histogram!("settings_between", "Sizes.", "a" => 1, exemplars, "b" => 2).observe(1.0);
}
