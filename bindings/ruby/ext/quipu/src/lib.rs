//! The native part of the gem `quipu`.
//!
//! The Ruby part, in `lib/quipu`, has the classes that an application sees, checks what it is given
//! where that is cheap or rare, and says what is wrong. This part has what counts, and what reads.
//! Each concept of the Ruby part that has a native half has a file here.
//!
//! All of it runs under Ruby's lock, but for the encoding of a scrape. See `ruby.rs` for what a
//! function must keep to.

mod counter;
mod gauge;
mod histogram;
mod info;
mod labels;
mod metric;
mod number;
mod ruby;
mod segment;
mod state_set;
mod store;
mod summary;
mod text;

/// What Ruby calls when it loads the library.
#[unsafe(no_mangle)]
pub extern "C" fn Init_native() {
    ruby::guarded(|| {
        if !text::check() {
            return Err(ruby::Raise::store("this version of Ruby numbers its encodings otherwise"));
        }
        segment::define();
        counter::define();
        gauge::define();
        histogram::define();
        summary::define();
        info::define();
        state_set::define();
        store::define();
        Ok(ruby::NIL)
    });
}
