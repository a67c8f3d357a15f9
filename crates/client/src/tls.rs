//! The TLS of the daemon's and the commands' clients.

use std::sync::Arc;

use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// TLS that verifies servers with the certificates of the system: those of `SSL_CERT_FILE` and
/// `SSL_CERT_DIR`, if these are set.
///
/// # Errors
/// If there are none, with the reason and the remedy.
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

/// TLS that trusts no server: for clients without it that a redirect may lead to.
pub fn without_trust() -> TlsConfig {
    with(None)
}

fn with(certificates: impl IntoIterator<Item = Certificate<'static>>) -> TlsConfig {
    // ureq panics if it has to choose.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    TlsConfig::builder()
        .root_certs(RootCerts::from(certificates))
        .unversioned_rustls_crypto_provider(provider)
        .build()
}
