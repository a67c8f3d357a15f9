//! Utilities that every part of the daemon and of the commands uses: addresses, settings, times,
//! signals, threads, memory, temporary files.

pub mod address;
pub mod background;
pub mod decoders;
pub mod json;
pub mod log_limiter;
pub mod memory;
pub mod omitted;
pub mod settings;
pub mod signals;
pub mod similar;
pub mod size;
pub mod temporary;
pub mod text;
pub mod time;
