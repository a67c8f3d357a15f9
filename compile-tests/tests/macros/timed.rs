use quipu::timed;

#[timed]
fn without_name() {}

#[timed("without_help_seconds")]
fn without_help() {}

#[timed("jobs_total", "Duration of a job.")]
fn reserved_suffix() {}

#[timed("of_a_const_fn_seconds", "Duration.")]
const fn at_compile_time() {}

#[timed("of_a_future_seconds", "Duration.")]
fn returns_a_future() -> impl Future<Output = ()> {
    async {}
}

#[timed("of_a_struct_seconds", "Duration.")]
struct NoFunction;

#[timed("settings_last_seconds", "Duration.", "queue" => 1, buckets = [1.0])]
fn settings_last() {}

#[timed("unknown_setting_seconds", "Duration.", bukets = [1.0])]
fn unknown_setting() {}

fn main() {}
