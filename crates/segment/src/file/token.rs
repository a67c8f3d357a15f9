//! Tokens: the numbers by which locks and claims in the file name their processes.
//!
//! A process draws a token from a count in the header, and locks the byte of that number, far after
//! the end of the file. The system releases the lock when the process ends. So whether a process
//! lives is whether its byte is locked.

#![cfg_attr(
    not(any(target_os = "linux", target_os = "android")),
    allow(unused_imports, reason = "fewer are used there")
)]

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{MappedFile, Mode};
use crate::error::{Error, ErrorKind};
use crate::fork;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::hold::Hold;
use crate::layout::at;
use crate::presence::is_locked;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::presence::lock_byte;

impl MappedFile {
    /// A number that is unique among all processes that have, or had, the file open. Its lock is
    /// released when the process ends, however it ends.
    #[inline]
    pub(crate) fn token(&self) -> Result<u64, Error> {
        match self.own_token() {
            Some(token) => Ok(token),
            None => {
                self.make_token().map_err(|error| Error::new(self.path(), ErrorKind::Io(error)))
            }
        }
    }

    #[inline]
    pub(super) fn own_token(&self) -> Option<u64> {
        let packed = self.token.load(Ordering::Relaxed);
        let token = packed & MAX_TOKENS;
        (token != 0 && packed >> TOKEN_BITS == own_generation()).then_some(token)
    }

    #[cold]
    fn make_token(&self) -> io::Result<u64> {
        let Some(_registration) = self.registration.lock() else {
            let message =
                "a signal handler interrupted this thread while it registered its process";
            return Err(io::Error::new(io::ErrorKind::WouldBlock, message));
        };
        if let Some(token) = self.own_token() {
            return Ok(token);
        }
        let token = self.lock_token()?;
        self.token.store(token | own_generation() << TOKEN_BITS, Ordering::Relaxed);
        Ok(token)
    }

    /// Whether the process of that token lives.
    pub(crate) fn is_alive(&self, token: u64) -> bool {
        if token > MAX_TOKENS {
            // No process has it: it comes from a damaged file.
            return false;
        }
        // A process that cannot be checked counts as alive: waiting is better than two owners.
        self.own_token() == Some(token)
            || self.own_file().and_then(|file| is_locked(&file, token)).unwrap_or(true)
    }

    /// A number that is given out once.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn next_token(&self) -> u64 {
        // SAFETY: the header lies inside the file, and its cells are used only as atomics.
        let tokens = unsafe { &*self.base.as_ptr().add(at::TOKENS.index()).cast::<AtomicU64>() };
        tokens.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & MAX_TOKENS
    }

    /// Locks the byte of a new token, by an open file description of this process alone, so that no
    /// child of a fork holds the lock too.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn lock_token(&self) -> io::Result<u64> {
        for attempt in 1_u32.. {
            let forks = fork::calm();
            let Some((file, mode)) = self.reopen() else { break };
            // A write lock needs a file that is open for writing, and excludes all others. A read
            // lock is seen by every process that checks, and belongs to this token as long as no
            // process draws it twice.
            let token = self.draw_token(&file, libc::F_OFD_SETLK, mode.lock())?;
            let hold = Hold::without_children(file, self.is_held_by_mapping())?;
            // A child that was forked since may have the file open, and would go on holding the
            // lock. No process has seen that token yet, so another one is drawn.
            if fork::forks() == forks || attempt == MAX_DRAWN {
                self.own.set(Some(hold));
                return Ok(token);
            }
        }
        if !self.has_descriptor() {
            return Err(io::Error::other("it cannot be opened again in this process"));
        }
        // A lock of the process instead of the descriptor, which all children share. It too ends
        // with the process, but also as soon as the process closes this file under another
        // descriptor.
        self.own.set(None);
        self.draw_token(&self.file, libc::F_SETLK, libc::F_WRLCK)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn draw_token(&self, file: &File, command: i32, kind: i32) -> io::Result<u64> {
        for _ in 0..MAX_DRAWN {
            let token = self.next_token();
            if token != 0 && !is_locked(file, token)? && lock_byte(file, token, command, kind)? {
                return Ok(token);
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// The process id: this system has no locks of open file descriptions.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn lock_token(&self) -> io::Result<u64> {
        Ok(u64::from(std::process::id()))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Mode {
    /// The kind of lock that the mode allows.
    pub(super) fn lock(&self) -> libc::c_int {
        match self {
            Self::ReadWrite => libc::F_WRLCK,
            Self::Read => libc::F_RDLCK,
        }
    }
}

/// Tokens are 1 to this.
const MAX_TOKENS: u64 = (1 << TOKEN_BITS) - 1;

const TOKEN_BITS: u32 = 38;

/// The bits of the generation of this process that fit above a token.
#[inline]
fn own_generation() -> u64 {
    u64::from(fork::generation()) & (u64::MAX >> TOKEN_BITS)
}

/// The most tokens that a process draws to get one.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MAX_DRAWN: u32 = 64;
