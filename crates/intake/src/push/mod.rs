//! Pushgateway's API: programs that end before a scrape push their metrics, in groups that stay
//! until they are pushed again, deleted or expired.
//!
//! | file | has |
//! |---|---|
//! | `path`, `options` | the group of a request, and the options of a push |
//! | `parse`, `builder`, `content` | the body |
//! | `forms`, `spots` | a cache for bodies that are like earlier bodies |
//! | `groups`, `names`, `packed` | the index: the series of each group |
//! | `check` | contradictions between groups |
//! | `update` | updates of the segment, in steps that a scrape does not see |
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
pub use routes::{PushGateway, ROUTES};
pub use settings::PushFlags;

/// The row in the list of inputs.
const INPUT: Input = Input::named("push");
