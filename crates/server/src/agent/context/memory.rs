//! The context that a process publishes in its memory, by OpenTelemetry's proposal 4719: a mapping
//! called `OTEL_CTX` in `/proc/PID/maps`, whose bytes are read from `/proc/PID/mem`. It begins
//! with:
//!
//! ```text
//! offset  bytes  in the byte order of the machine
//!      0      8  OTEL_CTX
//!      8      4  the version, 2
//!     12      4  bytes of the payload
//!     16      8  when it was published, in nanoseconds; 0 while it is being changed
//!     24      8  the address of the payload
//! ```
//!
//! A hostile process may write anything there. Only memory without a file, and that of the mapping
//! itself, is read: a page of a file may make its reader wait for a file system.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::procfs::{Mapping, start_of};

/// A process. Those that began earlier come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Process {
    start: u64,
    pid: u32,
}

/// Where a process has published a context, and how it began there.
#[derive(Debug, Clone)]
pub(super) struct Place {
    process: Process,
    address: u64,
    header: Header,
}

/// Why a context cannot be read.
#[derive(Debug)]
pub(super) enum Fault {
    /// The process is changing it, again and again.
    Changing,
    /// The system.
    System(io::Error),
    /// What is wrong with it.
    Contents(&'static str),
}

type Header = [u8; 32];

/// The most bytes of a list of mappings, and of a payload.
const MAX_MAPS: u64 = 1 << 20;
const MAX_PAYLOAD: u32 = 64 << 10;
/// The most mappings that are tried, and how often each.
const MAX_PLACES: usize = 8;
const TRIES: usize = 3;
const SIGNATURE: &[u8; 8] = b"OTEL_CTX";
const VERSION: u32 = 2;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changing => f.write_str("it changes again and again"),
            Self::System(error) => write!(f, "{error}"),
            Self::Contents(what) => f.write_str(what),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl Process {
    pub(super) fn of(pid: u32) -> Option<Self> {
        Some(Self { start: start_of(pid)?, pid })
    }

    pub(super) fn pid(self) -> u32 {
        self.pid
    }

    /// Opens a file of `/proc/PID`, which stays that of this process.
    fn open(self, name: &str) -> io::Result<File> {
        let file = File::open(format!("/proc/{}/{name}", self.pid))?;
        // Another process may have got its number meanwhile.
        if start_of(self.pid) != Some(self.start) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(file)
    }

    /// Reads its context: where it is, and the payload; `None` if it publishes none. `memfds` is
    /// the device of files without a path.
    pub(super) fn read(self, memfds: Option<&str>) -> Result<Option<(Place, Vec<u8>)>, Fault> {
        let mut maps = Vec::new();
        self.open("maps")?.take(MAX_MAPS).read_to_end(&mut maps)?;
        let mappings = Mappings::of(&maps, memfds);
        if mappings.published.is_empty() {
            return Ok(None);
        }
        let memory = self.open("mem")?;
        let mut read = Ok(None);
        for range in &mappings.published {
            match mappings.read(&memory, range) {
                Ok(Some((header, payload))) => {
                    let place = Place { process: self, address: range.start, header };
                    return Ok(Some((place, payload)));
                }
                Ok(None) => {}
                Err(fault) => read = Err(fault),
            }
        }
        read
    }
}

impl Place {
    pub(super) fn process(&self) -> Process {
        self.process
    }

    /// Whether the context is still the one that was read.
    pub(super) fn is_current(&self) -> bool {
        let memory = self.process.open("mem");
        let header = memory.and_then(|memory| header_at(&memory, self.address));
        header.is_ok_and(|header| header == self.header)
    }
}

/// The mappings of a process that matter.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mappings {
    /// Those that are called `OTEL_CTX`.
    published: Vec<Range<u64>>,
    /// The memory without files.
    plain: Vec<Range<u64>>,
}

impl Mappings {
    fn of(maps: &[u8], memfds: Option<&str>) -> Self {
        let mut found = Self::default();
        for line in maps.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            let Some(mapping) = Mapping::parse(&line) else { continue };
            let Some(range) = mapping.addresses().filter(|range| !range.is_empty()) else {
                continue;
            };
            if is_published(&mapping, memfds) && found.published.len() < MAX_PLACES {
                found.published.push(range.clone());
            }
            if mapping.has_file() {
                continue;
            }
            match found.plain.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => found.plain.push(range),
            }
        }
        found
    }

    /// Reads the context in a mapping; `None` if that is something else.
    fn read(
        &self,
        memory: &File,
        mapping: &Range<u64>,
    ) -> Result<Option<(Header, Vec<u8>)>, Fault> {
        for _ in 0..TRIES {
            let header = header_at(memory, mapping.start)?;
            if &header[..8] != SIGNATURE || number_of_4(&header, 8) != VERSION {
                return Ok(None);
            }
            if number_of_8(&header, 16) == 0 {
                continue;
            }
            let (bytes, address) = (number_of_4(&header, 12), number_of_8(&header, 24));
            if bytes > MAX_PAYLOAD {
                return Err(Fault::Contents("its payload has more than 65,536 bytes"));
            }
            let mut payload = vec![0; bytes as usize];
            if bytes > 0 {
                if !self.has(mapping, address, bytes) {
                    return Err(Fault::Contents("its payload is not in memory without a file"));
                }
                memory.read_exact_at(&mut payload, address)?;
            }
            if header_at(memory, mapping.start)? == header {
                return Ok(Some((header, payload)));
            }
        }
        Err(Fault::Changing)
    }

    /// Whether these bytes are in the mapping, or in memory without a file.
    fn has(&self, mapping: &Range<u64>, address: u64, bytes: u32) -> bool {
        let Some(end) = address.checked_add(bytes.into()) else { return false };
        let is_inside = |range: &Range<u64>| range.start <= address && end <= range.end;
        is_inside(mapping) || self.plain.iter().any(is_inside)
    }
}

/// Whether a mapping has the name of a context. A file may have any name, so that of a memfd is
/// believed on their device alone.
fn is_published(mapping: &Mapping<'_>, memfds: Option<&str>) -> bool {
    match mapping.path.strip_suffix(" (deleted)").unwrap_or(mapping.path) {
        "[anon:OTEL_CTX]" | "[anon_shmem:OTEL_CTX]" => true,
        "/memfd:OTEL_CTX" => memfds == Some(mapping.device),
        _ => false,
    }
}

/// The device of memfds, as lists of mappings show it.
#[cfg(target_os = "linux")]
pub(super) fn device_of_memfds() -> Option<String> {
    use rustix::fs::{MemfdFlags, fstat, major, memfd_create, minor};

    let file = memfd_create("quipu", MemfdFlags::CLOEXEC).ok()?;
    let device = fstat(file).ok()?.st_dev;
    Some(format!("{:02x}:{:02x}", major(device), minor(device)))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn device_of_memfds() -> Option<String> {
    None
}

fn header_at(memory: &File, address: u64) -> io::Result<Header> {
    let mut header = [0; 32];
    memory.read_exact_at(&mut header, address)?;
    Ok(header)
}

fn number_of_4(header: &Header, at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&header[at..at + 4]);
    // In the byte order of the machine: converting twice leaves them as they are.
    u32::from_le_bytes(bytes).to_le()
}

fn number_of_8(header: &Header, at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[at..at + 8]);
    u64::from_le_bytes(bytes).to_le()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn contexts_are_found_by_the_names_of_their_mappings() {
        let maps = b"\
            1000-2000 r--p 00000000 08:01 7    /bin/app\n\
            2000-3000 rw-p 00000000 00:00 0    [heap]\n\
            3000-4000 rw-p 00000000 00:00 0 \n\
            5000-6000 rw-p 00000000 00:00 0    [anon:OTEL_CTX]\n\
            6000-7000 rw-s 00000000 00:01 9    /memfd:OTEL_CTX (deleted)\n\
            7000-8000 rw-s 00000000 00:2f 9    /memfd:OTEL_CTX (deleted)\n\
            8000-9000 rw-s 00000000 00:01 8    [anon_shmem:OTEL_CTX]\n\
            9000-a000 rw-p 00000000 00:00 0    [anon:OTEL_CTX2]\n\
            b000-a000 rw-p 00000000 00:00 0    [anon:OTEL_CTX]\n\
            c000-d000 rw-s 00000000 00:01 9    /memfd:OTEL_C";
        let found = Mappings::of(maps, Some("00:01"));
        assert_eq!(found.published, [0x5000..0x6000, 0x6000..0x7000, 0x8000..0x9000]);
        assert_eq!(found.plain, [0x2000..0x4000, 0x5000..0x6000, 0x9000..0xa000]);
        assert_eq!(Mappings::of(maps, None).published.len(), 2);
        assert_eq!(Mappings::of(&maps.repeat(9), None).published.len(), MAX_PLACES);
        let mapping = 0x6000..0x7000;
        for (address, bytes, is_there) in [
            (0x6020, 0xfe0, true),
            (0x6020, 0xfe1, false),
            (0x2ff0, 0x20, true),
            (0x3ff0, 0x20, false),
            (0x1000, 1, false),
            (u64::MAX, 1, false),
            (u64::MAX, 0, false),
        ] {
            assert_eq!(found.has(&mapping, address, bytes), is_there, "{address:x} {bytes:x}");
        }
    }

    #[test]
    fn headers_of_any_bytes_are_refused_or_read() {
        let header = |published: u64, bytes: u32, address: u64| {
            let mut header = Vec::from(*SIGNATURE);
            for number in [VERSION.to_le(), bytes.to_le()] {
                header.extend(number.to_le_bytes());
            }
            for number in [published.to_le(), address.to_le()] {
                header.extend(number.to_le_bytes());
            }
            header
        };
        // A file stands for the memory: it begins at the address 0.
        let read = |header: Vec<u8>| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&[&header[..], b"payload"].concat()).unwrap();
            Mappings::default().read(&file, &(0..39))
        };
        let (_, payload) = read(header(1, 7, 32)).unwrap().unwrap();
        assert_eq!(payload, b"payload");
        assert_eq!(read(header(1, 0, 0)).unwrap().unwrap().1, b"");
        assert!(matches!(read(header(0, 7, 32)), Err(Fault::Changing)));
        for (bytes, address) in [(8, 32), (u32::MAX, 32), (MAX_PAYLOAD + 1, 32), (7, u64::MAX)] {
            let fault = read(header(1, bytes, address));
            assert!(matches!(fault, Err(Fault::Contents(_))), "{bytes} {address}");
        }
        let mut other = header(1, 7, 32);
        other[8] ^= 3;
        assert!(read(other).unwrap().is_none());
        for end in 0..25 {
            let cut = header(1, 7, 32)[..end].to_vec();
            assert!(!matches!(read(cut), Ok(Some(_))), "{end}");
        }
    }
}
