//! Validates the `Host` header field of requests.

use std::net::Ipv6Addr;

/// Returns whether a value is `uri-host [ ":" port ]` according to RFC 9110, 7.2 and RFC 3986,
/// 3.2.2. An empty host is valid.
pub(super) fn is_host(value: &[u8]) -> bool {
    let name = value.iter().take_while(|&&byte| NAME[byte as usize]).count();
    let rest = &value[name..];
    if name == 0 && rest.starts_with(b"[") {
        return is_literal(rest);
    }
    is_port(rest) && has_whole_escapes(&value[..name])
}

/// Returns whether this is an address in brackets, with or without a port.
fn is_literal(value: &[u8]) -> bool {
    let Some(end) = value.iter().position(|&byte| byte == b']') else {
        return false;
    };
    let (address, port) = (&value[1..end], &value[end + 1..]);
    is_port(port) && (is_ipv6(address) || is_future(address))
}

fn is_ipv6(address: &[u8]) -> bool {
    std::str::from_utf8(address).is_ok_and(|address| address.parse::<Ipv6Addr>().is_ok())
}

/// Returns whether this is an `IPvFuture`: `"v" 1*HEXDIG "." 1*( unreserved / sub-delims / ":" )`.
fn is_future(address: &[u8]) -> bool {
    let Some((b'v' | b'V', rest)) = address.split_first() else {
        return false;
    };
    let Some(dot) = rest.iter().position(|&byte| byte == b'.') else {
        return false;
    };
    let (version, name) = (&rest[..dot], &rest[dot + 1..]);
    let is_part = |&byte: &u8| byte == b':' || byte != b'%' && NAME[byte as usize];
    !version.is_empty()
        && version.iter().all(u8::is_ascii_hexdigit)
        && !name.is_empty()
        && name.iter().all(is_part)
}

/// Returns whether this is empty, or a colon and any number of digits.
fn is_port(rest: &[u8]) -> bool {
    match rest.split_first() {
        None => true,
        Some((colon, digits)) => *colon == b':' && digits.iter().all(u8::is_ascii_digit),
    }
}

/// Returns whether two hexadecimal digits follow each percent sign.
fn has_whole_escapes(name: &[u8]) -> bool {
    let mut escapes = name.split(|&byte| byte == b'%').skip(1);
    escapes.all(|part| part.len() >= 2 && part[..2].iter().all(u8::is_ascii_hexdigit))
}

/// The bytes of a registered name: unreserved characters, sub-delimiters, and the percent sign.
const NAME: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = b"-._~!$&'()*+,;=%";
    let mut i = 0;
    while i < 256 {
        table[i] = (i as u8).is_ascii_alphanumeric();
        i += 1;
    }
    i = 0;
    while i < bytes.len() {
        table[bytes[i] as usize] = true;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_the_form_of_the_rfc() {
        for host in [
            "",
            ":",
            ":80",
            "a",
            "localhost:8081",
            "127.0.0.1",
            "127.0.0.1:",
            "[::1]",
            "[::1]:80",
            "[v7.a:b]:1",
            "a-b_c~d.e",
            "a%20b",
            "x,y",
            "EXAMPLE.org.:65536",
        ] {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in [
            "a b",
            "a/b",
            "user@host",
            "a:b",
            "a:80:80",
            "a:-1",
            "a?b",
            "a#b",
            "a\\b",
            "[::1",
            "::1",
            "[]",
            "[::1]80",
            "[1.2.3.4]",
            "[v.a]",
            "[v7.]",
            "[vx.a]",
            "a%2",
            "a%",
            "a%zz",
            "a\tb",
            "h\u{f6}st",
            "a\"b",
            "<a>",
            "a[::1]",
            "http://a",
        ] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }
}
