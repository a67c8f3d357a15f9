//! The native part of the gem `quipu-metrics`.
//!
//! The Ruby part, in `lib/quipu`, contains the public classes. It checks their arguments where this
//! is cheap or rare, and raises most errors. This part counts and reads metrics. Each class of the
//! Ruby part with a native half is in a file here.
//!
//! All of this code runs while holding the GVL, except for the encoding of a scrape. Before you add
//! a function, read the rules in `ruby.rs`.

mod counter;
mod gauge;
mod histogram;
mod info;
mod labels;
mod memo;
mod metric;
mod number;
mod recording;
mod ruby;
mod segment;
mod state_set;
mod store;
mod summary;
mod text;

/// The entry point: Ruby calls it when it loads the library.
#[unsafe(no_mangle)]
pub extern "C" fn Init_native() {
    ruby::guarded(|| {
        if !text::check() {
            let what = "unsupported version of Ruby: its encodings have unexpected indexes";
            return Err(ruby::Raise::store(what));
        }
        segment::define();
        counter::define();
        gauge::define();
        histogram::define();
        summary::define();
        info::define();
        state_set::define();
        store::define();
        recording::define();
        Ok(ruby::NIL)
    });
}
