//! SHA-1 (RFC 3174) as a `const fn`. Redis identifies a Lua script by this hash (`EVALSHA`). Our
//! scripts are constants, so the compiler can compute their hashes.

/// Returns the hash in hexadecimal digits.
pub(super) const fn hexadecimal(bytes: &[u8]) -> [u8; 40] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (hash, mut out, mut i) = (words(bytes), [0; 40], 0);
    while i < out.len() {
        out[i] = DIGITS[(hash[i / 8] >> (28 - 4 * (i % 8)) & 15) as usize];
        i += 1;
    }
    out
}

/// Returns the five words of the hash.
const fn words(bytes: &[u8]) -> [u32; 5] {
    let mut hash = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    // The padded message is the bytes, a set bit, zeros, and the number of bits in 8 bytes.
    let (blocks, mut block) = ((bytes.len() + 9).div_ceil(64), 0);
    while block < blocks {
        hash = add_block(hash, bytes, block, block + 1 == blocks);
        block += 1;
    }
    hash
}

/// Updates the hash with one block of 64 bytes, whose padding this adds.
const fn add_block(hash: [u32; 5], bytes: &[u8], block: usize, is_last: bool) -> [u32; 5] {
    let (mut w, mut i) = ([0_u32; 80], 0);
    while i < 64 {
        let at = 64 * block + i;
        let byte = match at {
            _ if at < bytes.len() => bytes[at],
            _ if at == bytes.len() => 0x80,
            _ if is_last && i >= 56 => ((bytes.len() as u64 * 8) >> (8 * (63 - i))) as u8,
            _ => 0,
        };
        w[i / 4] |= (byte as u32) << (24 - 8 * (i % 4));
        i += 1;
    }
    i = 16;
    while i < 80 {
        w[i] = (w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16]).rotate_left(1);
        i += 1;
    }
    let [mut a, mut b, mut c, mut d, mut e] = hash;
    i = 0;
    while i < 80 {
        let (mixed, constant) = match i {
            0..20 => (b & c | !b & d, 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc_u32),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let sum = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e);
        let next = sum.wrapping_add(constant).wrapping_add(w[i]);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
        i += 1;
    }
    [
        hash[0].wrapping_add(a),
        hash[1].wrapping_add(b),
        hash[2].wrapping_add(c),
        hash[3].wrapping_add(d),
        hash[4].wrapping_add(e),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_every_length_are_those_of_the_client() {
        let bytes: Vec<u8> = (0..200_u8).map(|i| b' ' + i % 90).collect();
        for end in 0..bytes.len() {
            let text = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
            let expected = ::redis::Script::new(text);
            assert_eq!(expected.get_hash().as_bytes(), hexadecimal(text.as_bytes()), "{end} bytes");
        }
    }
}
