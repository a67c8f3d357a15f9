//! Tokens: the numbers that identify processes in the locks and claims of a file.
//!
//! A process draws a token from a counter in the header, and locks the byte with that number, far
//! beyond the end of the file. The system releases this lock when the process ends, so a process
//! lives exactly as long as its byte is locked.

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
    /// Returns the token of this process, a number that no other process of the file, present or
    /// past, shares. Its lock is released when the process ends, even by a SIGKILL.
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

    /// Returns whether the process with this token lives.
    pub(crate) fn is_alive(&self, token: u64) -> bool {
        if token > MAX_TOKENS {
            // A token out of these bounds is from a damaged file.
            return false;
        }
        // A process that cannot be checked counts as alive, because waiting is better than two
        // owners.
        self.own_token() == Some(token)
            || self.own_file().and_then(|file| is_locked(&file, token)).unwrap_or(true)
    }

    /// Draws a number that no other call returns.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn next_token(&self) -> u64 {
        // SAFETY: the header lies inside the file, and its cells are used only as atomics.
        let tokens = unsafe { &*self.base.as_ptr().add(at::TOKENS.index()).cast::<AtomicU64>() };
        tokens.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & MAX_TOKENS
    }

    /// Locks the byte of a new token through an open file description that only this process uses,
    /// because a child of a fork must not hold the lock, too.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn lock_token(&self) -> io::Result<u64> {
        for attempt in 1_u32.. {
            let forks = fork::calm();
            let Some((file, mode)) = self.reopen() else { break };
            // A write lock requires a file that is open for writing, and excludes all others. A
            // read lock is visible to every process that checks, and belongs to this token because
            // no process draws the same token.
            let token = self.draw_token(&file, libc::F_OFD_SETLK, mode.lock())?;
            let hold = Hold::without_children(file, self.is_held_by_mapping())?;
            // A child forked since then can hold the file open, and would keep the lock. Draw
            // another token, because no process has seen this one yet.
            if fork::forks() == forks || attempt == MAX_DRAWN {
                self.own.set(Some(hold));
                return Ok(token);
            }
        }
        if !self.has_descriptor() {
            return Err(io::Error::other("it cannot be opened again in this process"));
        }
        // Use a lock of the process instead of the descriptor, which all children share. This lock
        // ends with the process, too, but also as soon as the process closes another descriptor of
        // this file.
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

    /// Returns the process ID, because this system lacks locks of open file descriptions.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn lock_token(&self) -> io::Result<u64> {
        Ok(u64::from(std::process::id()))
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Mode {
    /// Returns the kind of lock that the mode allows.
    pub(super) fn lock(&self) -> libc::c_int {
        match self {
            Self::ReadWrite => libc::F_WRLCK,
            Self::Read => libc::F_RDLCK,
        }
    }
}

/// The greatest token; the least one is 1.
const MAX_TOKENS: u64 = (1 << TOKEN_BITS) - 1;

const TOKEN_BITS: u32 = 38;

/// Returns the bits of this process's generation that fit above a token.
#[inline]
fn own_generation() -> u64 {
    u64::from(fork::generation()) & (u64::MAX >> TOKEN_BITS)
}

/// The maximum number of tokens that a process draws until one is its own.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MAX_DRAWN: u32 = 64;
