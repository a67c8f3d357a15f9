//! Pushgateway's API: programs that end before a scrape push their metrics, in groups that stay
//! until they are pushed again, deleted or expired.
//!
//! | file | contents |
//! |---|---|
//! | `path`, `options` | parse the group of a request, and the options of a push |
//! | `parse`, `builder`, `content` | parse the body |
//! | `forms`, `spots` | cache the bodies that are similar to earlier bodies |
//! | `groups`, `names`, `packed` | the index: the series of each group |
//! | `check` | finds contradictions between groups |
//! | `update` | updates the segment, in steps that a scrape does not see |
//! | `routes`, `change` | run the steps of requests |
//! | `restore`, `values`, `json` | read back from the segment to the index and to clients |

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
