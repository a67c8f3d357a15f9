//! The labels of a metric: their names, as symbols, and the conversion of an application's Hash to
//! a key.
//!
//! A label costs one lookup in the Hash. The keys of the Hash are valid if all labels are found and
//! the Hash contains no other entries.

use std::mem::MaybeUninit;

use quipu::LabelGroup;
use quipu::binding::CachedSeries;
use quipu::label::{ANY, LabelWriter, Values};
use quipu::snapshot::Label;
use rb_sys::{
    Qundef, VALUE, rb_ary_new_capa, rb_ary_push, rb_funcallv, rb_hash_lookup2, rb_hash_size_num,
    ruby_value_type,
};

use crate::memo::{Known, Memo};
use crate::ruby::{self, NIL, Raise};
use crate::text::{self, Text};

/// The maximum number of labels of a metric, because their values are collected on the stack.
pub(crate) const MAX_LABELS: usize = 32;

/// The labels of a metric in the order of its family, each with its preset value, if any.
#[derive(Clone, Default)]
pub(crate) struct Labels(Box<[Name]>);

#[derive(Clone)]
struct Name {
    symbol: VALUE,
    preset: Option<Box<str>>,
}

/// The values of all labels. No code may call Ruby while this key lives, because that may free the
/// objects.
pub(crate) struct Key<'a> {
    count: usize,
    texts: [MaybeUninit<Text<'a>>; MAX_LABELS],
    /// The values that a memo knows, with their labels. In this case, `texts` is not used.
    known: Option<(&'a Labels, Known<'a>)>,
}

impl Labels {
    /// Makes labels from an array of symbols and one of preset values, with `nil` for none.
    pub(crate) fn new(names: VALUE, presets: VALUE) -> Result<Self, Raise> {
        let (names, presets) = (ruby::list(names)?, ruby::list(presets)?);
        if names.len() > MAX_LABELS || names.len() != presets.len() {
            let what = format!("too many labels, {}: use at most {MAX_LABELS}", names.len());
            return Err(Raise::New(c"InvalidLabelSetError", what));
        }
        let names = names.into_iter().zip(presets).map(|(symbol, preset)| {
            let preset = match preset {
                NIL => None,
                preset => Some(ruby::text(preset)?.into_boxed_str()),
            };
            Ok(Name { symbol, preset })
        });
        names.collect::<Result<_, Raise>>().map(Self)
    }

    /// Makes labels from symbols, without preset values.
    pub(crate) fn without_presets(symbols: &[VALUE]) -> Result<Self, Raise> {
        if symbols.len() > MAX_LABELS {
            let what = format!("too many labels, {}: use at most {MAX_LABELS}", symbols.len());
            return Err(Raise::New(c"InvalidLabelSetError", what));
        }
        Ok(Self(symbols.iter().map(|&symbol| Name { symbol, preset: None }).collect()))
    }

    /// Returns whether a preset value exists for each label.
    pub(crate) fn are_preset(&self) -> bool {
        self.0.iter().all(|name| name.preset.is_some())
    }

    /// Returns the names of the labels.
    pub(crate) fn names(&self) -> Result<Vec<String>, Raise> {
        let name = |name: &Name| match ruby::is(name.symbol, ruby_value_type::RUBY_T_SYMBOL) {
            // SAFETY: it is a symbol, so there is a name.
            true => ruby::text(unsafe { rb_sys::rb_sym2str(name.symbol) }),
            false => Err(Raise::New(c"InvalidLabelError", "a label is not a symbol".into())),
        };
        self.0.iter().map(name).collect()
    }

    pub(crate) fn mark(&self) {
        self.0.iter().for_each(|name| ruby::mark(name.symbol));
    }

    /// Reads the values from a Hash into an empty key, or raises; so the caller's frame must hold
    /// only plain data.
    ///
    /// # Safety
    /// The caller must not call Ruby while it uses the key.
    #[inline(always)]
    pub(crate) unsafe fn read<'a>(&'a self, metric: VALUE, labels: VALUE, key: &mut Key<'a>) {
        // SAFETY: guaranteed by the caller; the frame holds only plain data.
        unsafe {
            if !self.matches(labels, key) {
                self.refuse(metric, labels);
            }
        }
    }

    /// Like [`Labels::read`], but skips the strings of values that the memo knows. You can use this
    /// key only for updates.
    ///
    /// # Safety
    /// As for [`Labels::read`].
    #[inline(always)]
    pub(crate) unsafe fn find<'a>(
        &'a self,
        metric: VALUE,
        labels: VALUE,
        memo: &'a Memo,
        key: &mut Key<'a>,
    ) {
        let mut values = [const { MaybeUninit::uninit() }; MAX_LABELS];
        // SAFETY: as for `read`.
        unsafe {
            let Some(values) = self.look_up(labels, &mut values) else {
                self.refuse(metric, labels);
            };
            key.known = memo.find(values).map(|known| (self, known));
            if key.known.is_none() && self.texts(values, key) {
                memo.keep(values);
            }
        }
    }

    /// Like [`Labels::read`], but returns false if a label is missing, or the Hash contains others.
    ///
    /// # Safety
    /// As for [`Labels::read`].
    #[inline(always)]
    pub(crate) unsafe fn matches<'a>(&'a self, labels: VALUE, key: &mut Key<'a>) -> bool {
        let mut values = [const { MaybeUninit::uninit() }; MAX_LABELS];
        // SAFETY: guaranteed by the caller.
        unsafe {
            let Some(values) = self.look_up(labels, &mut values) else { return false };
            self.texts(values, key);
        }
        true
    }

    /// Reads the strings of the values into the key. Returns whether all could be read in place;
    /// the others were converted.
    ///
    /// # Safety
    /// As for [`Labels::read`].
    #[inline(always)]
    unsafe fn texts<'a>(&'a self, values: &[VALUE], key: &mut Key<'a>) -> bool {
        for (name, &value) in self.0.iter().zip(values) {
            // SAFETY: the values outlive the call. All were looked up before the first is read, so
            // no Ruby code runs between the reads.
            match unsafe { name.text(value) } {
                Some(text) => key.push(text),
                None => {
                    // SAFETY: as above.
                    unsafe { self.convert(values, key) };
                    return false;
                }
            }
        }
        true
    }

    /// Returns the preset values, if there is one for each label.
    pub(crate) fn preset(&self) -> Option<Vec<&str>> {
        self.0.iter().map(|name| name.preset.as_deref()).collect()
    }

    /// Looks up the value of each label, or [`UNDEFINED`] for its preset. Returns `None` if one is
    /// missing, or the Hash contains others.
    #[inline(always)]
    unsafe fn look_up<'v>(
        &self,
        labels: VALUE,
        values: &'v mut [MaybeUninit<VALUE>; MAX_LABELS],
    ) -> Option<&'v [VALUE]> {
        let values = values.get_mut(..self.0.len())?;
        if !ruby::is(labels, ruby_value_type::RUBY_T_HASH) {
            values.fill(MaybeUninit::new(UNDEFINED));
            // SAFETY: all were written.
            return (labels == NIL && self.are_preset()).then_some(unsafe { written(values) });
        }
        let mut found = 0;
        for (name, place) in self.0.iter().zip(&mut *values) {
            // SAFETY: it is a Hash, and the symbol is marked.
            let value = unsafe { rb_hash_lookup2(labels, name.symbol, UNDEFINED) };
            if value != UNDEFINED {
                found += 1;
            } else if name.preset.is_none() {
                return None;
            }
            place.write(value);
        }
        // SAFETY: it is a Hash.
        let are_all = found == unsafe { rb_hash_size_num(labels) } as usize;
        // SAFETY: the loop wrote all values.
        are_all.then_some(unsafe { written(values) })
    }

    /// Like [`Labels::matches`], for values that cannot be read in place.
    #[cold]
    unsafe fn convert<'a>(&'a self, values: &[VALUE], key: &mut Key<'a>) {
        key.count = 0;
        // SAFETY: the caller keeps the values alive. The strings are new, and a private array keeps
        // them alive until `keep`, which follows all calls of Ruby. Using the key does not call
        // Ruby, so they live until then.
        unsafe {
            let strings = rb_ary_new_capa(MAX_LABELS as _);
            for (name, &value) in self.0.iter().zip(values) {
                let is_preset = value == UNDEFINED && name.preset.is_some();
                rb_ary_push(strings, if is_preset { NIL } else { text::convert(value) });
            }
            for (i, name) in (0..).zip(self.0.iter()) {
                let string = rb_sys::rb_ary_entry(strings, i);
                key.push(match (&name.preset, string) {
                    (Some(preset), NIL) => Text::Str(preset),
                    (_, string) => text::read(string).unwrap_or(Text::Str("")),
                });
            }
            keep(strings);
        }
    }

    /// Raises an error that lists the labels of the metric.
    #[cold]
    unsafe fn refuse(&self, metric: VALUE, labels: VALUE) -> ! {
        let arguments = [labels];
        // SAFETY: the method of the Ruby part raises.
        unsafe { rb_funcallv(metric, ruby::id(c"refuse_labels"), 1, arguments.as_ptr()) };
        unreachable!("refuse_labels raises")
    }
}

impl Name {
    /// Returns the string of a value of this label, if it can be read in place.
    ///
    /// # Safety
    /// As for [`text::read`].
    #[inline(always)]
    unsafe fn text<'a>(&'a self, value: VALUE) -> Option<Text<'a>> {
        match (&self.preset, value) {
            (Some(preset), UNDEFINED) => Some(Text::Str(preset)),
            // SAFETY: guaranteed by the caller.
            (_, value) => unsafe { text::read(value) },
        }
    }
}

/// A placeholder for the preset value of a label.
pub(crate) const UNDEFINED: VALUE = Qundef as VALUE;

/// # Safety
/// All values must have been written.
#[inline(always)]
unsafe fn written(values: &[MaybeUninit<VALUE>]) -> &[VALUE] {
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
}

/// Makes the compiler keep an object on the stack up to this point.
#[inline(always)]
pub(crate) fn keep(object: VALUE) {
    std::hint::black_box(object);
}

impl<'a> Key<'a> {
    /// Makes a key without values.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { count: 0, texts: [const { MaybeUninit::uninit() }; MAX_LABELS], known: None }
    }

    #[inline(always)]
    fn push(&mut self, text: Text<'a>) {
        self.texts[self.count].write(text);
        self.count += 1;
    }
}

impl Key<'_> {
    /// Calls `work` with the values as a list.
    #[inline(always)]
    pub(crate) fn with_texts<T>(&self, work: impl FnOnce(&[&str]) -> T) -> T {
        let mut texts = [""; MAX_LABELS];
        let mut numbers = [const { MaybeUninit::<itoa::Buffer>::uninit() }; MAX_LABELS];
        let all = self.texts[..self.count].iter().zip(&mut texts).zip(&mut numbers);
        for ((text, place), number) in all {
            // SAFETY: `push` wrote the first `count`.
            *place = match unsafe { text.assume_init() } {
                Text::Str(text) => text,
                Text::Number(n) => number.write(itoa::Buffer::new()).format(n),
            };
        }
        work(&texts[..self.count])
    }
}

impl LabelGroup for Key<'_> {
    type Identity = Values<'static>;
    const LABELS: &'static [Label<'static>] = &[];
    const COUNT: usize = ANY;

    #[inline(always)]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        if let Some((labels, known)) = &self.known {
            return encode_known(labels, known, writer);
        }
        for text in &self.texts[..self.count] {
            // SAFETY: `push` wrote the first `count`. Each part is read like it was written,
            // because a load that spans two stores would wait for both.
            match *unsafe { text.assume_init_ref() } {
                Text::Str(text) => writer.text(text),
                Text::Number(n) => writer.text(itoa::Buffer::new().format(n)),
            }
        }
    }

    #[inline(always)]
    fn cached(&self) -> Option<&CachedSeries> {
        self.known.as_ref().map(|(_, known)| known.series)
    }
}

/// Writes values that a memo knows.
#[cold]
#[inline(never)]
fn encode_known(labels: &Labels, known: &Known<'_>, writer: &mut LabelWriter<'_>) {
    for (name, value) in labels.0.iter().zip(known.values) {
        // SAFETY: the memo keeps the objects alive. They were read in place before, and cannot
        // change.
        match unsafe { name.text(value.get()) } {
            Some(Text::Number(n)) => writer.text(itoa::Buffer::new().format(n)),
            Some(Text::Str(text)) => writer.text(text),
            None => writer.text(""),
        }
    }
}
