//! The possible contents of a disk after a power loss at a given moment of a log: all synced data,
//! and any part of the later writes.
//!
//! Each sector contains the result of some prefix of its writes, chosen per sector, because disks
//! reorder writes and tear pages. A file can be of any length since its last sync. A directory
//! contains the result of a prefix of its changes.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::recorder::Event;
use crate::sequence::SplitMix;

const SECTOR: usize = 512;

/// Returns the files that a power loss after the first `end` events of a log can leave, by name.
pub(crate) fn after_power_loss(
    log: &[Event],
    end: usize,
    random: &mut SplitMix,
) -> BTreeMap<OsString, Vec<u8>> {
    let log = &log[..end];
    let names = names(log, random);
    names.into_iter().map(|(name, file)| (name, content(log, file, random))).collect()
}

fn names(log: &[Event], random: &mut SplitMix) -> BTreeMap<OsString, u64> {
    let changes = log.iter().enumerate();
    let is_change = |event: &Event| matches!(event, Event::Link { .. } | Event::Unlink { .. });
    let synced = log.iter().rposition(|event| matches!(event, Event::SyncDirectory)).unwrap_or(0);
    let unsynced = log[synced..].iter().filter(|event| is_change(event)).count() as u64;
    let mut left = random.below(unsynced + 1);
    let mut names = BTreeMap::new();
    for (at, event) in changes.filter(|(_, event)| is_change(event)) {
        if at > synced {
            if left == 0 {
                break;
            }
            left -= 1;
        }
        match event {
            Event::Link { file, name } => drop(names.insert(name.clone(), *file)),
            Event::Unlink { name } => drop(names.remove(name)),
            _ => {}
        }
    }
    names
}

fn content(log: &[Event], file: u64, random: &mut SplitMix) -> Vec<u8> {
    let is_sync = |event: &Event| matches!(event, Event::Sync { file: synced } if *synced == file);
    let synced = log.iter().rposition(is_sync).unwrap_or(0);
    let mut bytes = Vec::new();
    let mut lengths = Vec::new();
    // The writes after the last sync, by sector.
    let mut later: BTreeMap<usize, Vec<&[u8]>> = BTreeMap::new();
    for (at, event) in log.iter().enumerate() {
        match event {
            Event::Length { file: of, length } if *of == file => {
                if at <= synced {
                    bytes.resize(*length as usize, 0);
                } else {
                    lengths.push(*length as usize);
                }
            }
            Event::Write { file: of, offset, data } if *of == file => {
                let offset = *offset as usize;
                if at <= synced {
                    bytes[offset..offset + data.len()].copy_from_slice(data);
                    continue;
                }
                // The kernel writes whole sectors, except at the end of a file.
                for (number, sector) in data.chunks(SECTOR).enumerate() {
                    later.entry(offset + number * SECTOR).or_default().push(sector);
                }
            }
            _ => {}
        }
    }
    lengths.push(bytes.len());
    let length = lengths[random.below(lengths.len() as u64) as usize];
    bytes.resize(length, 0);
    for (offset, writes) in later {
        let applied = random.below(writes.len() as u64 + 1) as usize;
        for write in &writes[..applied] {
            let end = length.min(offset + write.len());
            if offset < end {
                bytes[offset..end].copy_from_slice(&write[..end - offset]);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_is_there_and_the_rest_may_be() {
        let write = |data: u8| Event::Write { file: 2, offset: 0, data: vec![data; 1024] };
        let log = [
            Event::Link { file: 2, name: "a".into() },
            Event::Length { file: 2, length: 1024 },
            write(1),
            Event::Sync { file: 2 },
            Event::SyncDirectory,
            write(2),
            Event::Length { file: 2, length: 2048 },
        ];
        let (mut old, mut new, mut torn) = (0, 0, 0);
        let mut random = SplitMix(1);
        for _ in 0..200 {
            let image = after_power_loss(&log, log.len(), &mut random);
            let bytes = &image[&OsString::from("a")];
            assert!(bytes.len() == 1024 || bytes.len() == 2048);
            match (bytes[0], bytes[512]) {
                (1, 1) => old += 1,
                (2, 2) => new += 1,
                (1, 2) | (2, 1) => torn += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(old > 0 && new > 0 && torn > 0, "{old} {new} {torn}");
    }
}
