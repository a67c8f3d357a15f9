//! Truncates strings from other programs, because a long string would hide the rest of a message.

/// Returns the beginning of a string: at most this number of bytes, without splitting a character.
pub fn cut(text: &str, bytes: usize) -> &str {
    let mut ends = (0..=bytes.min(text.len())).rev();
    &text[..ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0)]
}
