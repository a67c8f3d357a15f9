use quipu::{Description, Registry};

fn main() {
    let registry = Registry::new();
    let _jobs: u64 = registry.register(Description::new("jobs", "Completed jobs.")).unwrap();
}
