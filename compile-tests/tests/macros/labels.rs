use quipu::{counter, gauge};

fn main() {
    let labels = [("method", "GET")];
    counter!("labels_without_help", &labels).inc();
    counter!("labels_in_a_slice", "Requests.", &labels).inc();
    let name = "method";
    counter!("name_in_a_variable", "Requests.", name => "GET").inc();
    gauge!("name_in_a_variable_after_a_setting", "A level.", unit = "celsius", name => 1).set(1.0);
}
