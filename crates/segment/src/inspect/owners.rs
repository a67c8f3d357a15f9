//! Lists the processes that a file names by their tokens: owners of locks and of claims.
//!
//! To learn whether a process lives, this module looks for the lock on its token's byte (see 5.6 in
//! `docs/formats.md`). It does so without taking a lock.

use std::collections::HashSet;
use std::fs::File;

use super::Report;
use super::source::Source;
use crate::layout::at;
use crate::presence;

/// A process that owns a part of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The token that identifies the process in the file.
    pub token: u64,
    /// The locks or claims that it holds, for messages.
    pub holding: String,
    /// Whether it lives; `None` if that cannot be determined.
    pub is_alive: Option<bool>,
}

/// The bits of a lock's word that contain the token.
const TOKEN: u64 = (1 << 38) - 1;
/// The words of a line of claims.
const LINE: u64 = crate::claims::LINE as u64;

pub(super) fn read(source: &Source, file: Option<&File>, report: &mut Report) {
    let mut owners = Vec::new();
    for (at, name) in [(at::REGISTRATION, "registration of metrics"), (at::GROWING, "growth")] {
        owners.push((source.at(at.words()) & TOKEN, format!("the lock of the {name}")));
    }
    for family in &report.families {
        let name = &family.schema.name;
        owners.push((family.lock & TOKEN, format!("the lock of the family {name:?}")));
        owners.push((family.folding & TOKEN, format!("the second lock of the family {name:?}")));
    }
    claims(source, report, &mut owners);
    owners.retain(|(token, _)| *token != 0);
    report.owners = owners
        .into_iter()
        .map(|(token, holding)| Owner { token, holding, is_alive: is_alive(file, token) })
        .collect();
    report.is_open = file.and_then(|file| presence::is_present(file).ok());
}

/// Adds the owners in the blocks of claims, newest block first.
fn claims(source: &Source, report: &mut Report, owners: &mut Vec<(u64, String)>) {
    let mut seen = HashSet::new();
    let mut next = source.at(at::CLAIMS.words()) & u64::from(u32::MAX);
    while next != 0 {
        let word = source.at(next);
        let words = (word >> 32) * LINE;
        if words == 0 || !source.has_words(next, words) || !seen.insert(next) {
            report.add_damage(next * 8, "a block of claims contradicts the layout: it ends here");
            return;
        }
        if !source.spend(words) {
            report.add_damage(next * 8, "blocks of claims overlap");
            return;
        }
        report.claim_bytes += words * 8;
        let is_claim = |at: &u64| {
            let claim = source.at(*at);
            claim >> 63 == 0 && claim & u64::from(u32::MAX) != 0
        };
        let held = (next + LINE..next + words).filter(is_claim).count();
        owners.push((source.at(next + 1), format!("claims of {held} series")));
        next = word & u64::from(u32::MAX);
    }
}

pub(super) fn is_alive(file: Option<&File>, token: u64) -> Option<bool> {
    // A token out of these bounds is from a damaged file.
    if token == 0 || token > TOKEN {
        return Some(false);
    }
    presence::is_locked(file?, token).ok()
}
