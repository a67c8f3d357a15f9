//! Pushgateway's API: programs that end before a scrape push their metrics, in groups that stay
//! until they are pushed again, deleted or expired.
//!
//! | file | has |
//! |---|---|
//! | `path`, `options` | what a request says of its group, and of how to treat it |
//! | `parse`, `builder`, `content` | the body |
//! | `forms`, `spots` | what is known of bodies that are like earlier ones |
//! | `groups`, `names`, `packed` | the index: which series a group has |
//! | `check` | contradictions between groups |
//! | `update` | changes of the segment, in steps that a scrape does not see |
//! | `routes`, `change` | the steps of requests |
//! | `restore`, `values`, `json` | the way back: from the segment to the index and to clients |

mod builder;
mod change;
mod check;
mod content;
mod forms;
mod groups;
mod json;
mod names;
mod options;
mod packed;
mod parse;
mod path;
mod restore;
mod routes;
mod settings;
mod spots;
mod update;
mod values;

use super::list::Input;

pub use options::{Gauges, Mode, Settings};
pub use routes::{Push, ROUTES};
pub use settings::PushFlags;

/// The row in the list of inputs.
const INPUT: Input = Input::named("push");
