//! Seeded hashes for strings from outside. They are seeded because senders could otherwise choose
//! colliding strings.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

/// The secrets that make hashes differ between tables.
pub(crate) struct Secrets(RapidSecrets);

impl Default for Secrets {
    fn default() -> Secrets {
        Secrets(RapidSecrets::seed(seed()))
    }
}

impl core::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    #[inline(always)]
    pub(crate) fn hash(&self, text: &[u8]) -> u64 {
        rapidhash_v3_micro_inline::<true, false>(text, &self.0)
    }
}

/// Returns a seed from the system, obtained through the hash tables of the standard library.
#[cfg(feature = "std")]
fn seed() -> u64 {
    use core::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Returns the address of an allocation. This has little entropy, but there is no other source
/// without the standard library.
#[cfg(not(feature = "std"))]
fn seed() -> u64 {
    let somewhere = alloc::boxed::Box::new(0u64);
    core::ptr::from_ref(&*somewhere).addr() as u64
}
