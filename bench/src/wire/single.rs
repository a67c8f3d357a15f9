//! Measures single messages: their sizes, and the times to write and to read one of the four
//! original messages.
//!
//! A message is written to a buffer that is reused, or to a new one each time. It is read into a
//! message that is reused and owns its id and its values, like in the Go libraries. Or its id stays
//! in the input, and the library chooses the place of its values.

use super::contender::{Codec, Shape};
use super::ours::Ours;
use super::sink::{Seen, Sink, Used};
use super::{Format, Formats};
use crate::measure::{Case, Options, black_box};
use crate::record::{Label, Record};

/// The cases of one message, with their subjects.
pub(super) struct Singles<S> {
    marshal: Case<'static>,
    fresh: Case<'static>,
    unmarshal: Case<'static>,
    borrow: Case<'static>,
    sizes: Vec<Record>,
    shape: std::marker::PhantomData<S>,
}

impl<S: Shape> Singles<S> {
    /// Cases without subjects.
    pub(super) fn new() -> Self {
        let case = |action| Case::new(format!("{action}/{}", S::NAME));
        Singles {
            marshal: case("marshal"),
            fresh: case("marshal-fresh"),
            unmarshal: case("unmarshal"),
            borrow: case("unmarshal-borrowed"),
            sizes: Vec::new(),
            shape: std::marker::PhantomData,
        }
    }

    /// Adds a library, after a check that it can read its own output.
    pub(super) fn library<C: Codec<S>>(&mut self) {
        let encoded = checked::<S, C>();
        let subject = C::subject();
        let label = Label::new(&format!("size/{}", S::NAME), &subject, "size", "B");
        self.sizes.push(label.of(&[encoded.len() as f64]));

        let (mut codec, message, mut out) = (C::default(), C::message(S::SEED), Vec::new());
        add(&mut self.marshal, &subject, move || {
            out.clear();
            black_box(codec.marshal(black_box(&message), &mut out));
        });

        let (mut codec, message) = (C::default(), C::message(S::SEED));
        add(&mut self.fresh, &subject, move || {
            black_box(codec.marshal_fresh(black_box(&message)));
        });

        let (mut codec, mut kept, input) = (C::default(), C::Kept::default(), encoded.clone());
        add(&mut self.unmarshal, &subject, move || {
            codec.unmarshal(black_box(&input), &mut kept);
            black_box(&kept);
        });

        if C::BORROWS {
            let (mut codec, mut used) = (C::default(), Used::default());
            add(&mut self.borrow, &subject, move || {
                codec.borrow(black_box(&encoded), &mut used);
                black_box(&used);
            });
        }
    }

    /// Measures all, in rotation.
    pub(super) fn run(self, options: Options) -> Vec<Record> {
        let mut records = self.sizes;
        for case in [self.marshal, self.fresh, self.unmarshal, self.borrow] {
            records.extend(case.run(&options));
        }
        records
    }
}

impl<S: Shape> Formats for Singles<S> {
    fn add<F: Format>(&mut self) {
        self.library::<Ours<F>>();
    }
}

/// Adds a subject whose operation is one call.
fn add(case: &mut Case<'static>, subject: &str, mut operation: impl FnMut() + 'static) {
    let before = std::mem::replace(case, Case::new(""));
    *case = before.exclusive(subject, move |n| (0..n).for_each(|_| operation()));
}

/// The original message, written.
///
/// # Panics
///
/// If the library cannot read its own output, because then it must not be measured.
fn checked<S: Shape, C: Codec<S>>() -> Vec<u8> {
    let seen = |show: &mut dyn FnMut(&mut Seen)| {
        let mut seen = Seen::default();
        show(&mut seen);
        seen.finish()
    };
    let (mut codec, mut kept) = (C::default(), C::Kept::default());
    let out = codec.marshal_fresh(&C::message(S::SEED));
    assert_eq!(codec.marshal(&C::message(S::SEED), &mut Vec::new()), out, "{}", C::subject());
    let expected = seen(&mut |sink| sink.message(S::SEED.into()));
    // Twice, because a reused message must not continue where the previous one ended.
    for _ in 0..2 {
        codec.unmarshal(&out, &mut kept);
        assert_eq!(seen(&mut |sink| C::look(&kept, sink)), expected, "{}", C::subject());
    }
    if C::BORROWS {
        let borrowed = seen(&mut |sink| codec.borrow(&out, sink));
        assert_eq!(borrowed, expected, "{}, borrowed", C::subject());
    }
    out
}
