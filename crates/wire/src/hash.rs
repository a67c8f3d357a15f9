//! Hashes of texts that come from outside: nobody shall choose them so that they fall together.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_micro_inline};

/// What makes hashes differ from table to table.
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

/// From the system, by way of the standard library's tables.
#[cfg(feature = "std")]
fn seed() -> u64 {
    use core::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Where memory lies, which is little: without the standard library there is no other source.
#[cfg(not(feature = "std"))]
fn seed() -> u64 {
    let somewhere = alloc::boxed::Box::new(0u64);
    core::ptr::from_ref(&*somewhere).addr() as u64
}
