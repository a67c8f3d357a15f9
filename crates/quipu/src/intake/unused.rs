//! Names that are no longer used: their families are freed, so that others find room.
//!
//! A family that comes to have no series keeps its name and its memory, and counts toward
//! [`Limits::families`](super::Limits::families), until this is called. It is for a program that
//! starts: while intakes work, each of their threads has families at hand.

use std::collections::HashSet;
use std::time::Duration;

use quipu_segment::series::{Family, Identity};

use super::Intake;
use super::class::{Class, Role};
use crate::error::Error;
use crate::registry::Registry;

impl Intake {
    /// Frees the families that intakes made and that are no longer used, hidden series included:
    /// those whose series all have expired and did not change for that long, and those that have
    /// none. A counter of one of them that comes back starts at zero. Returns the number
    /// of freed families. Their memory is used again for new ones of the same kind and settings.
    ///
    /// Call it before the segment's families are used in any other way: handles to a family that
    /// was freed, intakes among them, could change another one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use quipu::Registry;
    /// use quipu::intake::{InputValue, Intake, Limits, Metric, Mode};
    ///
    /// let registry = Registry::new();
    /// let mut intake = Intake::new(&registry, Limits::default())?;
    /// let level = Metric::new("level");
    /// intake.take(level, &[("room", "a")], &InputValue::Gauge(1.0), Mode::Set, None)?;
    /// intake.remove("level", &[("room", "a")])?;
    /// assert_eq!(intake.usage().families, 1);
    /// drop(intake);
    /// assert_eq!(Intake::free_unused(&registry, Duration::ZERO)?, 1);
    /// let intake = Intake::new(&registry, Limits::default())?;
    /// assert_eq!((intake.usage().families, intake.freed()?), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A segment that other processes may have open, or children of a fork; inconsistent families;
    /// the errors of the disk.
    pub fn free_unused(registry: &Registry, least: Duration) -> Result<u64, Error> {
        let segment = registry.segment();
        let fail = |error| Error::segment("", error);
        let families = segment.families().map_err(fail)?;
        let is_taken_in = |family: &&Family| family.schema().identity == Identity::Variant;
        let ours: Vec<(Role, &Family)> = families
            .iter()
            .filter(is_taken_in)
            .map(|family| (Class::from_schema(family.schema()).role, family))
            .collect();
        let is_kept =
            |&(role, family): &(Role, &Family)| role == Role::Shown && !family.is_unused(least);
        let name = |family: &Family| family.schema().name.clone();
        let kept: HashSet<String> =
            ours.iter().filter(|one| is_kept(one)).map(|(_, family)| name(family)).collect();
        let is_unused = |(role, family): (Role, &Family)| match role {
            Role::Shown => family.is_unused(least),
            // What a source has grown by since its last total is added to a series that is there.
            Role::Beside => !kept.contains(&family.schema().name) && family.is_unused(least),
            // The sum to which it is added may have any name.
            Role::Apart => family.is_empty(),
            Role::Help => !kept.contains(&family.schema().name),
        };
        let unused = ours.into_iter().filter(|one| is_unused(*one));
        let unused: Vec<Family> = unused.map(|(_, family)| family.clone()).collect();
        segment.free_families(&unused).map_err(fail)
    }

    /// The number of families that were [freed](Intake::free_unused), and whose memory no other
    /// family has taken since.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn freed(&self) -> Result<u64, Error> {
        let freed = self.registry.segment().freed_families();
        freed.map_err(|error| Error::segment("", error))
    }
}
