//! Frees families whose names are no longer used, because new families need the room.
//!
//! A family without series keeps its name and its memory, and counts toward
//! [`Limits::families`](super::Limits::families), until you call this. It is meant for a program
//! that starts: while intakes work, each of their threads caches families.

use std::collections::HashSet;
use std::time::Duration;

use quipu_segment::series::{Family, Identity};

use super::Intake;
use super::class::{Class, Role};
use crate::error::Error;
use crate::registry::Registry;

impl Intake {
    /// Frees the families that intakes made and that are no longer used, including their hidden
    /// series: families whose series all expired and did not change for this long, and families
    /// without series. If a counter of such a family returns, it starts at zero. Returns the number
    /// of freed families. New families of the same kind and settings reuse their memory.
    ///
    /// Call this before you use the segment's families in any other way, because handles to a freed
    /// family, including handles in intakes, could change another one.
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
    /// If other processes, or children of a fork, may have the segment open; if families are
    /// inconsistent; or on errors of the disk.
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
            // The growth of a source since its last total is added to an existing series.
            Role::Beside => !kept.contains(&family.schema().name) && family.is_unused(least),
            // The sum that it is added to can have any name.
            Role::Apart => family.is_empty(),
            Role::Help => !kept.contains(&family.schema().name),
        };
        let unused = ours.into_iter().filter(|one| is_unused(*one));
        let unused: Vec<Family> = unused.map(|(_, family)| family.clone()).collect();
        segment.free_families(&unused).map_err(fail)
    }

    /// Returns the number of families that were [freed](Intake::free_unused), and whose memory no
    /// other family reuses yet.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn freed(&self) -> Result<u64, Error> {
        let freed = self.registry.segment().freed_families();
        freed.map_err(|error| Error::segment("", error))
    }
}
