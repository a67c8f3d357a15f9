//! The subcommands of `quipu` that read or change metrics. Each file is one command, except `look`,
//! `output`, `filter` and `wire`, which several commands share.

pub mod compare;
pub mod convert;
pub mod count;
pub mod diff;
pub mod expose;
mod filter;
pub mod get;
pub mod inspect;
pub mod lint;
mod look;
pub mod output;
pub mod push;
pub mod record;

pub mod snapshot;
pub mod top;
pub mod wire;
