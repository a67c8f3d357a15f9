//! A template of pages that differ only in their values.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use crate::remote::lines;

/// A template of pages in Prometheus' format that differ only in their values. If a page matches,
/// you can read its values in a fraction of the time that parsing would take, because names and
/// labels are only compared.
///
/// ```
/// use quipu_wire::remote::exposition::text::Template;
///
/// let text = "# TYPE hits counter\nhits{path=\"/\"} 7\nup 1";
/// let values = Template::values(text).unwrap();
/// assert_eq!([&text[values[0].clone()], &text[values[1].clone()]], ["7", "1"]);
/// let template = Template::new(text.as_bytes(), &values);
/// let mut numbers = Vec::new();
/// let other = b"# TYPE hits counter\nhits{path=\"/\"} 8.5\nup 0";
/// assert!(template.read(other, |number| numbers.push(number)));
/// assert_eq!(numbers, [8.5, 0.0]);
/// assert!(!template.read(b"hits{path=\"/\"} 8.5\nup 0", |_| {}));
/// ```
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Template {
    /// The bytes without the values, and the end of each part.
    text: Box<[u8]>,
    ends: Box<[usize]>,
}

impl Template {
    /// Returns the positions of the values. A value follows the last blank of each line that is
    /// neither empty nor a comment. Returns `None` if such a line contains no blank.
    pub fn values(text: &str) -> Option<Vec<Range<usize>>> {
        let (mut values, mut start) = (Vec::with_capacity(128), 0);
        for line in text.split('\n') {
            let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
            let first = line.bytes().find(|byte| !is_blank(byte));
            if first.is_some_and(|byte| byte != b'#') {
                let blank = line.bytes().rposition(|byte| is_blank(&byte))?;
                values.push(start + blank + 1..start + line.len());
            }
            start += line.len() + 1;
        }
        Some(values)
    }

    /// Returns the parts of a page before, between and after its values.
    pub fn parts<'t>(
        text: &'t [u8],
        values: &[Range<usize>],
    ) -> impl Iterator<Item = &'t [u8]> + Clone {
        let starts = core::iter::once(0).chain(values.iter().map(|value| value.end));
        let ends = values.iter().map(|value| value.start).chain([text.len()]);
        starts.zip(ends).map(|(start, end)| text.get(start..end).unwrap_or_default())
    }

    /// Creates a template from a page whose values are at these positions. Each value must end its
    /// line.
    pub fn new(text: &[u8], values: &[Range<usize>]) -> Template {
        let parts = Template::parts(text, values);
        let ends = parts.clone().scan(0, |end, part| {
            *end += part.len();
            Some(*end)
        });
        let ends = ends.collect();
        Template { text: parts.collect::<Vec<_>>().concat().into(), ends }
    }

    /// Returns the number of values.
    pub fn count(&self) -> usize {
        self.ends.len().saturating_sub(1)
    }

    /// Returns the number of bytes without the values.
    #[allow(clippy::len_without_is_empty, reason = "one without bytes is of no use")]
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Compares a page with the template, and calls the function with each value in order. Returns
    /// false if the page differs, or if a value is not a number.
    ///
    /// A value extends to the end of its line, and a number contains no blank. Because of this, a
    /// page that matches has its values where [`Template::values`] finds them.
    #[inline]
    pub fn read(&self, text: &[u8], each: impl FnMut(f64)) -> bool {
        self.read_values(text, each).is_some()
    }

    fn read_values(&self, text: &[u8], mut each: impl FnMut(f64)) -> Option<()> {
        let (end, ends) = self.ends.split_last()?;
        // Checks UTF-8 once for the whole page, because checking each value takes as long as
        // reading it.
        let str = str::from_utf8(text).ok()?;
        let (mut at, mut start) = (0, 0);
        for end in ends {
            let part = &self.text[mem::replace(&mut start, *end)..*end];
            let rest = text[at..].strip_prefix(part)?;
            let len = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            at += part.len();
            each(lines::float(&str[at..at + len])?);
            at += len;
        }
        (text[at..] == self.text[start..*end]).then_some(())
    }
}
