//! Identifies the sources that limits apply to, such as the client of an address, and completes
//! addresses to listen on.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the address that identifies a client. For IPv6, this is the /64 network, because a
/// client can use all addresses of its network.
pub fn identity(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

/// The unit that source limits apply to.
#[derive(Debug, Hash)]
pub enum Source<'a> {
    /// A client, regardless of the input that it uses.
    Client(IpAddr),
    /// A listener whose clients have no address.
    Listener(&'a str),
    /// The job of a push or of an OTLP resource.
    Job(&'a str),
}

impl<'a> Source<'a> {
    /// Creates a client from an address, or else a listener with this name.
    pub fn named(text: &'a str) -> Self {
        text.parse().map_or(Self::Listener(text), Self::Client)
    }
}

/// Returns an address to listen on. A port without a host, for example `9090`, gets the loopback
/// address.
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
