//! Base64 with padding: [RFC 4648](https://www.rfc-editor.org/rfc/rfc4648#section-4).

use quipu_arena::Scope;

use crate::error::Fault;
use crate::pieces::Piece;
use crate::values;

/// Bytes to write in base64.
#[derive(Clone, Copy)]
pub(crate) struct Base64<'a>(pub(crate) &'a [u8]);

// SAFETY: This writes four letters for each three bytes, and for the remaining one or two.
unsafe impl Piece for Base64<'_> {
    #[inline(always)]
    fn bound(&self) -> usize {
        self.0.len().div_ceil(3).saturating_mul(4)
    }

    #[inline(always)]
    unsafe fn put(&self, mut at: *mut u8) -> *mut u8 {
        let letters = |bits: u64| LETTERS[bits as usize & 4095];
        let mut write = |pair: [u8; 2]| {
            // SAFETY: `at` is valid for all letters, and each pair is written once.
            unsafe {
                at.cast::<[u8; 2]>().write_unaligned(pair);
                at = at.add(2);
            }
        };
        let mut rest = self.0;
        // 8 bytes are loaded at once, and 6 of them are used.
        while let Some(bytes) = rest.first_chunk::<8>() {
            let bits = u64::from_be_bytes(*bytes);
            write(letters(bits >> 52));
            write(letters(bits >> 40));
            write(letters(bits >> 28));
            write(letters(bits >> 16));
            rest = &rest[6..];
        }
        while let Some((&[a, b, c], others)) = rest.split_first_chunk::<3>() {
            let bits = u64::from(u32::from_be_bytes([0, a, b, c]));
            write(letters(bits >> 12));
            write(letters(bits));
            rest = others;
        }
        match *rest {
            [a] => {
                write(letters(u64::from(a) << 4));
                write(*b"==");
            }
            [a, b] => {
                let bits = u64::from(u32::from_be_bytes([0, a, b, 0]));
                write(letters(bits >> 12));
                write([letters(bits)[0], b'=']);
            }
            _ => {}
        }
        at
    }
}

pub(crate) const EXPECTED: &str = "an id in base64 with its padding";

/// Decodes padded base64. As in Go, the bits after the last byte can have any value.
#[inline(always)]
pub(crate) fn decode<'m>(text: &[u8], scope: &Scope<'m>) -> Result<&'m [u8], Fault> {
    let (groups, odd) = text.as_chunks::<4>();
    if !odd.is_empty() {
        return Err(Fault::malformed(EXPECTED));
    }
    let Some((last, groups)) = groups.split_last() else { return Ok(&[]) };
    let (last, padding) = match *last {
        [a, b, b'=', b'='] => ([a, b, b'A', b'A'], 2),
        [a, b, c, b'='] => ([a, b, c, b'A'], 1),
        last => (last, 0),
    };
    let mut groups = groups.iter();
    let bytes = values::fill(groups.len() + 1, scope, || {
        let [a, b, c, d] = *groups.next().unwrap_or(&last);
        let [first, second, third, fault] = (SHIFTED[0][usize::from(a)]
            | SHIFTED[1][usize::from(b)]
            | SHIFTED[2][usize::from(c)]
            | SHIFTED[3][usize::from(d)])
        .to_le_bytes();
        if fault == 0 { Ok([first, second, third]) } else { Err(Fault::malformed(EXPECTED)) }
    })?;
    let bytes = bytes.as_flattened();
    Ok(&bytes[..bytes.len() - padding])
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The contribution of a letter to the three bytes of a group, for each of the four positions in
/// the group. The least significant byte is the first. The most significant is 255 if the byte is
/// not a letter.
static SHIFTED: [[u32; 256]; 4] = {
    let mut table = [[0xff00_0000; 256]; 4];
    let mut sextet = 0;
    while sextet < 64 {
        let mut place = 0;
        while place < 4 {
            let bytes = ((sextet as u32) << (18 - 6 * place)).to_be_bytes();
            table[place][ALPHABET[sextet] as usize] =
                u32::from_le_bytes([bytes[1], bytes[2], bytes[3], 0]);
            place += 1;
        }
        sextet += 1;
    }
    table
};

/// The two letters for 12 bits.
static LETTERS: [[u8; 2]; 4096] = {
    let mut table = [[0; 2]; 4096];
    let mut bits = 0;
    while bits < 4096 {
        table[bits] = [ALPHABET[bits >> 6], ALPHABET[bits & 63]];
        bits += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use quipu_arena::Arena;

    use super::*;
    use crate::pieces::append;

    fn encode(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        append(&mut out, Base64(bytes));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn examples_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(
                decode(text.as_bytes(), &Arena::new().as_scope()).unwrap(),
                bytes.as_bytes()
            );
        }
    }

    #[test]
    fn all_lengths_and_bytes_come_back() {
        let bytes: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        for len in 0..bytes.len() {
            let bytes = &bytes[bytes.len() - len..];
            let text = encode(bytes);
            assert_eq!(text.len(), len.div_ceil(3) * 4);
            assert_eq!(decode(text.as_bytes(), &Arena::new().as_scope()).unwrap(), bytes);
        }
    }

    #[test]
    fn invalid_base64_is_refused() {
        for text in [
            "Z", "Zg", "Zg=", "Zm8", "=", "====", "Z===", "Zg==Zg==", "Zm=v", "Zm9-", "Zm9_",
            "Zm9v\n", " Zm9", "Zm9v====", "\u{e9}Zg", "A\0AA",
        ] {
            assert!(decode(text.as_bytes(), &Arena::new().as_scope()).is_err(), "{text}");
        }
    }
}
