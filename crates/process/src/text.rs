//! Texts of others in messages.

/// The beginning of a text that a client sent, short enough for a message: at most this many bytes.
pub fn cut(text: &str, bytes: usize) -> &str {
    let mut ends = (0..=bytes.min(text.len())).rev();
    &text[..ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0)]
}
