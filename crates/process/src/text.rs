//! Shortens strings from others for messages.

/// Returns the beginning of a client's string, at most this many bytes. This keeps messages short.
pub fn cut(text: &str, bytes: usize) -> &str {
    let mut ends = (0..=bytes.min(text.len())).rev();
    &text[..ends.find(|end| text.is_char_boundary(*end)).unwrap_or(0)]
}
