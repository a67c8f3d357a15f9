//! Configures TLS for the clients of the daemon and the commands.

use std::sync::Arc;

use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Returns a configuration that verifies servers with the system's certificates. If `SSL_CERT_FILE`
/// or `SSL_CERT_DIR` is set, these certificates are used instead.
///
/// # Errors
/// Fails if there are no certificates. The message contains the reason and a remedy.
pub fn of_system() -> Result<TlsConfig, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        return Err(format!(
            "the system has no certificates of authorities{why}; install the package \
             ca-certificates, or name a file with SSL_CERT_FILE"
        ));
    }
    Ok(with(found.certs.iter().map(|one| Certificate::from_der(one).to_owned())))
}

/// Returns a configuration that trusts no server. It is for clients of plain HTTP, because a
/// redirect can still lead to HTTPS.
pub fn without_trust() -> TlsConfig {
    with(None)
}

fn with(certificates: impl IntoIterator<Item = Certificate<'static>>) -> TlsConfig {
    // ureq panics if it must choose a provider itself.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    TlsConfig::builder()
        .root_certs(RootCerts::from(certificates))
        .unversioned_rustls_crypto_provider(provider)
        .build()
}
