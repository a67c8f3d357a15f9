//! Replaces the generated parts of a file that is otherwise written by hand.
//!
//! Such a part begins with a line `<!-- figures NAME -->` and ends with a line `<!-- end -->`.

use crate::{Error, Result};

const START: &str = "<!-- figures ";
const END: &str = "<!-- end -->";

/// Replaces each generated part of `text` by the part of the same name in `generated`. Both contain
/// the same parts, each once. `place` names the file in errors.
pub(super) fn replace(place: &str, text: &str, generated: &str) -> Result<String> {
    let parts = parts(generated)?;
    let mut result = text.to_string();
    for (start, part) in &parts {
        let missing = || Error::report(format!("{place} has no part `{start}` that ends"));
        let from = text_of(&result, start).ok_or_else(missing)?;
        result.replace_range(from, part);
    }
    if self::parts(&result)?.len() == parts.len() {
        Ok(result)
    } else {
        Err(Error::report(format!("{place} has parts that are not generated")))
    }
}

/// Returns the first line of each part, and its content.
fn parts(text: &str) -> Result<Vec<(&str, &str)>> {
    let starts = text.lines().filter(|line| line.starts_with(START));
    starts
        .map(|start| {
            let open = || Error::report(format!("`{start}` has no `{END}`"));
            text_of(text, start).map(|range| (start, &text[range])).ok_or_else(open)
        })
        .collect()
}

/// Returns the range after a line, before the end.
fn text_of(text: &str, start: &str) -> Option<std::ops::Range<usize>> {
    let from = text.find(start)? + start.len();
    Some(from..from + text[from..].find(END)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_replaced_and_the_rest_stays() {
        let generated = "{{with}}\n<!-- figures a -->\nnew a\n<!-- end -->\n\n\
                         <!-- figures b -->\nb\n<!-- end -->";
        let text =
            "x\n<!-- figures b -->\n<!-- end -->\ny\n<!-- figures a -->\nold\n<!-- end -->\nz";
        assert_eq!(
            replace("x.md", text, generated).unwrap(),
            "x\n<!-- figures b -->\nb\n<!-- end -->\ny\n\
             <!-- figures a -->\nnew a\n<!-- end -->\nz"
        );
        assert!(replace("x.md", "x", generated).is_err());
        assert!(replace("x.md", text, "<!-- figures a -->\nnew a\n<!-- end -->").is_err());
    }
}
