//! Addresses to listen on, and of clients: which client an address belongs to, for limits that each
//! client has, and what else is a source.

use std::net::{IpAddr, Ipv6Addr};

/// The address that identifies a client. For an IPv6 address, it is the network of 64 bits: a
/// client may have all addresses of that network.
pub fn identity(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

/// What the limits on a source count by.
#[derive(Debug, Hash)]
pub enum Source<'a> {
    /// The identity of a client, whatever way it takes in.
    Client(IpAddr),
    /// A listener whose clients have no address.
    Listener(&'a str),
    /// What a push or a resource of OTLP says that it is of.
    Job(&'a str),
}

impl<'a> Source<'a> {
    /// A client by the text of its identity, or a listener by its name.
    pub fn named(text: &'a str) -> Self {
        text.parse().map_or(Self::Listener(text), Self::Client)
    }
}

/// An address to listen on. A port alone is completed with the loopback address.
pub fn with_host(address: &str) -> String {
    match address.parse::<u16>() {
        Ok(port) if address.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("127.0.0.1:{port}")
        }
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_64_bits_is_one_client() {
        for (address, client) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(identity(address.parse().unwrap()).to_string(), client);
        }
    }
}
