//! The labels of a metric: their names, as symbols, and from a Hash of the application to a key.
//!
//! A label costs one look into the Hash. That all are found, and that the Hash has no more, is the
//! check of its keys.

use std::mem::MaybeUninit;

use quipu::label::{ANY, Values};
use quipu::snapshot::Label;
use quipu::{KeyWriter, LabelGroup};
use rb_sys::{
    Qundef, VALUE, rb_ary_new_capa, rb_ary_push, rb_funcallv, rb_hash_lookup2, rb_hash_size_num,
    ruby_value_type,
};

use crate::ruby::{self, NIL, Raise};
use crate::text::{self, Text};

/// More labels than this cannot be declared: their values are gathered on the stack.
pub(crate) const MOST: usize = 32;

/// The labels of a metric in the order of its family, each with its value where that is given
/// beforehand.
#[derive(Clone, Default)]
pub(crate) struct Labels(Box<[Name]>);

#[derive(Clone)]
struct Name {
    symbol: VALUE,
    preset: Option<Box<str>>,
}

/// The values of all labels. Nothing calls Ruby while it lives, or the objects may go.
pub(crate) struct Key<'a> {
    count: usize,
    texts: [MaybeUninit<Text<'a>>; MOST],
}

impl Labels {
    /// From an array of symbols, and one of strings, with `nil` where no value is given.
    pub(crate) fn new(names: VALUE, presets: VALUE) -> Result<Self, Raise> {
        let (names, presets) = (ruby::list(names)?, ruby::list(presets)?);
        if names.len() > MOST || names.len() != presets.len() {
            let what = format!("{} labels; at most {MOST} can be", names.len());
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

    /// Of these symbols, without values.
    pub(crate) fn without_presets(symbols: &[VALUE]) -> Result<Self, Raise> {
        if symbols.len() > MOST {
            let what = format!("{} labels; at most {MOST} can be", symbols.len());
            return Err(Raise::New(c"InvalidLabelSetError", what));
        }
        Ok(Self(symbols.iter().map(|&symbol| Name { symbol, preset: None }).collect()))
    }

    /// Whether all values are given.
    pub(crate) fn are_preset(&self) -> bool {
        self.0.iter().all(|name| name.preset.is_some())
    }

    /// Their names.
    pub(crate) fn names(&self) -> Result<Vec<String>, Raise> {
        let name = |name: &Name| match ruby::is(name.symbol, ruby_value_type::RUBY_T_SYMBOL) {
            // SAFETY: it is a symbol, which has a name.
            true => ruby::text(unsafe { rb_sys::rb_sym2str(name.symbol) }),
            false => Err(Raise::New(c"InvalidLabelError", "a label is not a symbol".into())),
        };
        self.0.iter().map(name).collect()
    }

    pub(crate) fn mark(&self) {
        self.0.iter().for_each(|name| ruby::mark(name.symbol));
    }

    /// Reads the values from a Hash into an empty key, or raises: the caller's frame has plain data
    /// only.
    ///
    /// # Safety
    /// Nothing calls Ruby while the key is used.
    #[inline(always)]
    pub(crate) unsafe fn read<'a>(&'a self, metric: VALUE, labels: VALUE, key: &mut Key<'a>) {
        // SAFETY: the caller's promise; the frame has plain data only.
        unsafe {
            if !self.matches(labels, key) {
                self.refuse(metric, labels);
            }
        }
    }

    /// As [`Labels::read`]; false where some label is missing, or there are others.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub(crate) unsafe fn matches<'a>(&'a self, labels: VALUE, key: &mut Key<'a>) -> bool {
        let mut values = [const { MaybeUninit::<VALUE>::uninit() }; MOST];
        // SAFETY: the Hash outlives the call, and its values with it. All are found before the first
        // is read, so that nothing runs in between.
        unsafe {
            if !self.find(labels, &mut values) {
                return false;
            }
            for (name, value) in self.0.iter().zip(&values) {
                let value = value.assume_init();
                let text = match (&name.preset, value) {
                    (Some(preset), UNDEFINED) => Some(Text::Str(preset)),
                    (_, value) => text::read(value),
                };
                match text {
                    Some(text) => key.push(text),
                    None => {
                        self.convert(&values, key);
                        return true;
                    }
                }
            }
        }
        true
    }

    /// The values that are given beforehand, where all are.
    pub(crate) fn preset(&self) -> Option<Vec<&str>> {
        self.0.iter().map(|name| name.preset.as_deref()).collect()
    }

    /// Looks up all labels; false where some is missing, or there are others.
    #[inline(always)]
    unsafe fn find(&self, labels: VALUE, values: &mut [MaybeUninit<VALUE>; MOST]) -> bool {
        if !ruby::is(labels, ruby_value_type::RUBY_T_HASH) {
            if labels == NIL {
                values.iter_mut().for_each(|value| {
                    value.write(UNDEFINED);
                });
            }
            return labels == NIL && self.are_preset();
        }
        let mut found = 0;
        for (name, place) in self.0.iter().zip(values) {
            // SAFETY: it is a Hash, and the symbol is marked.
            let value = unsafe { rb_hash_lookup2(labels, name.symbol, UNDEFINED) };
            if value != UNDEFINED {
                found += 1;
            } else if name.preset.is_none() {
                return false;
            }
            place.write(value);
        }
        // SAFETY: it is a Hash.
        found == unsafe { rb_hash_size_num(labels) } as usize
    }

    /// As [`Labels::matches`], for values of which some are no text that can be read where it lies.
    #[cold]
    unsafe fn convert<'a>(&'a self, values: &[MaybeUninit<VALUE>; MOST], key: &mut Key<'a>) {
        key.count = 0;
        // SAFETY: `find` has written as many values as there are names. The strings are new, in an
        // array that is nobody else's, and alive for as long as that: until `keep`, which is behind
        // all calls of Ruby, and then until the key is used, which calls none.
        unsafe {
            let strings = rb_ary_new_capa(MOST as _);
            for (name, value) in self.0.iter().zip(values) {
                let value = value.assume_init();
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

    /// Raises that these are not the labels.
    #[cold]
    unsafe fn refuse(&self, metric: VALUE, labels: VALUE) -> ! {
        let arguments = [labels];
        // SAFETY: the method of the Ruby part raises.
        unsafe { rb_funcallv(metric, ruby::id(c"refuse_labels"), 1, arguments.as_ptr()) };
        unreachable!("refuse_labels raises")
    }
}

const UNDEFINED: VALUE = Qundef as VALUE;

/// Makes the compiler hold an object until here.
#[inline(always)]
pub(crate) fn keep(object: VALUE) {
    std::hint::black_box(object);
}

impl<'a> Key<'a> {
    /// Without values.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { count: 0, texts: [const { MaybeUninit::uninit() }; MOST] }
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
        let mut texts = [""; MOST];
        let mut numbers = [const { MaybeUninit::<itoa::Buffer>::uninit() }; MOST];
        let all = self.texts[..self.count].iter().zip(&mut texts).zip(&mut numbers);
        for ((text, place), number) in all {
            // SAFETY: `push` has written the first `count`.
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
    fn encode(&self, key: &mut KeyWriter<'_>) {
        for text in &self.texts[..self.count] {
            // SAFETY: `push` has written the first `count`. They are read by their parts, as they
            // were written: a load of more than one store waits for both.
            match *unsafe { text.assume_init_ref() } {
                Text::Str(text) => key.text(text),
                Text::Number(n) => key.text(itoa::Buffer::new().format(n)),
            }
        }
    }
}
