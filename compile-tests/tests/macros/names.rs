use quipu::{counter, gauge, histogram};

fn main() {
    counter!("jobs_total", "The formats add the suffix.").inc();
    gauge!("temperature", "A label twice.", "room" => 1, "room" => 2).set(21.0);
    histogram!("duration", "A reserved label.", "le" => 1).observe(1.0);
    let name = "known_at_run_time";
    counter!(name, "A name that is known at run time only.").inc();
    named("an_argument");
}

fn named(name: &str) {
    counter!(name, "A name that is an argument.").inc();
    counter!(name, "A name that is an argument.", "label" => 1).inc();
}
