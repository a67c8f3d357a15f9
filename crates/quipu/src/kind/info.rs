//! Infos: strings about the program, as labels of a series that is always 1.

use std::sync::Arc;

use quipu_segment::series::{self, Schema, SeriesCells, SeriesHandle};

use super::family::Instrument;
use super::metric_kind::{MetricKind, Scratch};
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::scope::{Register, Scope};
use crate::snapshot::{self, Value};

/// Strings that do not change while the program runs, such as its version.
///
/// ```
/// use quipu::{Description, Info, Registry};
///
/// let registry = Registry::new();
/// let description = Description::new("build", "What this program was made from.")
///     .values("version", ["1.2.3"])
///     .values("revision", ["4a5b6c"]);
/// let _info: Info = registry.register(description)?;
/// assert!(registry.text().contains("build_info{version=\"1.2.3\",revision=\"4a5b6c\"} 1"));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Info {
    _bound: SeriesHandle,
}

/// The meaning of an info's cells: there are none, because the strings are in the labels.
#[derive(Debug)]
pub struct InfoKind;

impl crate::kind::sealed::Sealed for Info {}

impl Instrument for Info {
    type Kind = InfoKind;
    const SETTINGS: &'static [Setting] = &[];

    fn describe(_: &Description, schema: &mut Schema) -> Result<(), Error> {
        schema.cells = 1;
        Ok(())
    }

    fn from_handle(handle: SeriesHandle, _: &Arc<InfoKind>) -> Self {
        Self { _bound: handle }
    }
}

impl MetricKind for InfoKind {
    const NUMBER: u8 = 7;
    const SNAPSHOT_KIND: snapshot::Kind = snapshot::Kind::Info;

    fn decode(_: &series::Family) -> Result<Self, Error> {
        Ok(Self)
    }

    fn read(
        &self,
        _: &series::Family,
        _: &SeriesCells<'_>,
        _: &mut Scratch,
        emit: impl FnOnce(Value<'_>),
    ) {
        emit(Value::Info);
    }
}

impl Register for Info {
    /// Registers an info. Its labels are the pairs of [`Description::values`].
    fn register(scope: &Scope, mut description: Description) -> Result<Self, Error> {
        description.labels = description.values.iter().map(|(name, _)| name.clone()).collect();
        if let Some((label, values)) = description.values.iter().find(|(_, v)| v.len() != 1) {
            let reason =
                format!("the label {label:?} of an info has {} values: give it one", values.len());
            return Err(Error::invalid(&description.full_name(), reason));
        }
        super::family::single(scope, &description)
    }
}
