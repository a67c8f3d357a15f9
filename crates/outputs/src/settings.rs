//! The settings that all outputs share.

use std::time::Duration;

use quipu_client::ReceiverUrl;
use quipu_client::url_text::{self, UrlText};
use quipu_process::flags;
use quipu_process::settings::Unusable;

use crate::labels::ExternalLabel;

flags! {
    /// The flags of the labels of all series.
    #[command(next_help_heading = "Sending")]
    pub struct LabelFlags {
        /// Label of all series that are sent, unless they carry one with this name; may be given
        /// several times [default: none]
        #[arg(long, env = "QUIPU_EXTERNAL_LABEL", value_name = "NAME=VALUE", value_delimiter = '\n')]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        external_label: Vec<ExternalLabel>,
    }
}

impl LabelFlags {
    /// Returns the labels of all series.
    ///
    /// # Errors
    /// Fails if a label is given two values.
    pub fn resolve(&self) -> Result<Vec<ExternalLabel>, Unusable> {
        let labels = self.external_label.clone().unwrap_or_default();
        for (at, label) in labels.iter().enumerate() {
            if labels[..at].iter().any(|other| other.name == label.name) {
                let reason = format!("the label {} has two values", label.name);
                return Err(Unusable::new("external-label", reason));
            }
        }
        Ok(labels)
    }
}

/// Parses the URLs of receivers. A URL that occurs twice is an error.
pub(crate) fn receivers(
    flag: &'static str,
    given: Option<&Vec<UrlText>>,
    of: fn(&str) -> Result<ReceiverUrl, String>,
) -> Result<Vec<ReceiverUrl>, Unusable> {
    let receivers = url_text::read(flag, given, of, ReceiverUrl::as_str)?;
    for (at, receiver) in receivers.iter().enumerate() {
        if receivers[..at].iter().any(|other| other.name() == receiver.name()) {
            return Err(Unusable::new(flag, format!("{} is given twice", receiver.name())));
        }
    }
    Ok(receivers)
}

/// The shortest interval, because a shorter one is most likely a mistake.
pub(crate) const MIN_INTERVAL: Duration = Duration::from_millis(100);
