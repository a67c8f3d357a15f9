//! The HTTP client of the daemon and the commands: URLs, TLS, credentials, header fields, and
//! requests.

pub mod credentials;
mod exchange;
pub mod exposition;
pub mod fetch;
pub mod header_text;
pub mod headers;
pub mod media;
pub mod sender;
pub mod tls;
mod unix;
mod url;
pub mod url_text;
pub mod via;

pub use exposition::Text;
pub use url::{EXAMPLE, ReceiverUrl};
