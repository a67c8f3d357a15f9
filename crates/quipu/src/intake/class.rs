//! Distinguishes the families of an intake beyond their schema: the class of `docs/formats.md`,
//! section 5.5.

use quipu_segment::series::{Identity, Schema};

/// The label of a family without labels. This label makes the family keyed, because only series of
/// keyed families can be removed and can expire.
pub const ALONE: &str = "__none";

const BARE: u8 = 1;
const GROUPED: u8 = 2;
const ALONE_BIT: u8 = 4;
/// The lowest of the two bits of the role.
const ROLE: u32 = 3;

/// The class of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Class {
    /// Whether the name of a counter is shown unchanged, without `_total`.
    pub(crate) bare: bool,
    /// Whether the series belong to groups that are replaced as a whole.
    pub(crate) grouped: bool,
    /// Whether the only label is [`ALONE`].
    pub(crate) alone: bool,
    /// The purpose of the family.
    pub(crate) role: Role,
}

/// The purpose of a family. Scrapes only show the families of one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Role {
    /// The family contains series that scrapes show.
    #[default]
    Shown,
    /// The family contains the last totals of sources that are followed into a shown family of the
    /// same name and labels. Other senders add to this shown family.
    Beside,
    /// The family contains the last totals of sources that are followed into other series.
    Apart,
    /// The family contains no series. It stores a help that arrived after the families of the same
    /// name were created.
    Help,
}

/// Returns a word that distinguishes a family from others of the same name, such as "variant".
pub(crate) fn identity(schema: &Schema) -> &'static str {
    match (schema.identity, Class::from_schema(schema).role) {
        (Identity::Name, _) => "name",
        (Identity::Apart, _) => "apart",
        (Identity::Variant, Role::Shown) => "variant",
        (Identity::Variant, Role::Beside | Role::Apart) => "followed",
        (Identity::Variant, Role::Help) => "help",
    }
}

impl Role {
    const ALL: [Self; 4] = [Self::Shown, Self::Beside, Self::Apart, Self::Help];
}

impl Class {
    /// Returns the class in a schema.
    pub(crate) fn from_schema(schema: &Schema) -> Self {
        if schema.identity != Identity::Variant {
            return Self::default();
        }
        let has = |bit| schema.class & bit != 0;
        let alone = has(ALONE_BIT) && matches!(&*schema.labels, [label] if label.name == ALONE);
        let role = Role::ALL[usize::from(schema.class >> ROLE) % Role::ALL.len()];
        Self { bare: has(BARE), grouped: has(GROUPED), alone, role }
    }

    /// Returns the number in the schema.
    pub(crate) const fn number(self) -> u8 {
        (self.bare as u8 * BARE)
            | (self.grouped as u8 * GROUPED)
            | (self.alone as u8 * ALONE_BIT)
            | ((self.role as u8) << ROLE)
    }
}
