//! Memory of the arenas of `quipu-arena`. This covers the types that threads can share, because any
//! thread can scrape.

use std::ops::Deref;

use quipu_arena::{BaseAllocator, LimitedAllocator, Policy, Pool, SharedArena};

use super::Collector;
use crate::snapshot::{FamilyHeader, Kind, Sink};

/// Collects `arena_*`: the memory that arenas have taken, and its limit. You name each arena.
///
/// An arena is a `&'static` reference to or an `Arc` of a [`Pool`], a [`SharedArena`], or a
/// [`LimitedAllocator`], which shows the memory of all arenas that allocate from it. A scrape does
/// not slow down the users of an arena.
///
/// ```
/// use quipu_arena::{Global, LimitedAllocator, SharedArena};
///
/// static MEMORY: LimitedAllocator<Global> = LimitedAllocator::new(1 << 20, Global);
/// static NAMES: SharedArena<&LimitedAllocator<Global>> = SharedArena::new_in(&MEMORY);
///
/// let registry = quipu::Registry::new();
/// let arenas = quipu::collector::Arenas::new().and("names", &NAMES).and("memory", &MEMORY);
/// registry.register_collector(arenas)?;
/// NAMES.alloc_str("requests");
/// assert!(registry.text().contains("arena_allocated_bytes{arena=\"names\"} 8"));
/// assert!(registry.text().contains("arena_limit_bytes{arena=\"memory\"} 1048576"));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Default)]
pub struct Arenas {
    arenas: Vec<(Box<str>, Box<Measure>)>,
}

type Measure = dyn Fn() -> ArenaUsage + Send + Sync;

/// The memory of one arena, in bytes. Unknown values are not shown.
#[derive(Clone, Copy, Debug, Default)]
struct ArenaUsage {
    reserved: Option<usize>,
    allocated: Option<usize>,
    peak: Option<usize>,
    limit: Option<usize>,
}

/// An arena whose memory a scrape can read.
///
/// ```
/// use std::sync::Arc;
///
/// use quipu_arena::SharedArena;
///
/// let names = Arc::new(SharedArena::new());
/// let arenas = quipu::collector::Arenas::new().and("names", names.clone());
/// let registry = quipu::Registry::new();
/// registry.register_collector(arenas)?;
/// names.alloc_str("requests");
/// let bytes = registry.value("arena_allocated_bytes", &[("arena", "names")]);
/// assert!(bytes >= Some(8.0));
/// # Ok::<(), quipu::Error>(())
/// ```
pub trait MeasuredArena: sealed::ArenaMeasure {}
impl<T: sealed::ArenaMeasure> MeasuredArena for T {}

impl Arenas {
    /// Creates a collector without arenas.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an arena under a name.
    #[must_use]
    pub fn and<T: MeasuredArena>(
        mut self,
        name: &str,
        arena: impl Deref<Target = T> + Send + Sync + 'static,
    ) -> Self {
        self.arenas.push((name.into(), Box::new(move || arena.usage())));
        self
    }
}

impl std::fmt::Debug for Arenas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.arenas.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

impl Collector for Arenas {
    fn names(&self) -> Vec<String> {
        FAMILIES.iter().map(|family| family.name.to_owned()).collect()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let usages: Vec<ArenaUsage> = self.arenas.iter().map(|(_, measure)| measure()).collect();
        let values: [fn(&ArenaUsage) -> Option<usize>; 4] = [
            |usage| usage.reserved,
            |usage| usage.allocated,
            |usage| usage.peak,
            |usage| usage.limit,
        ];
        for (family, value) in FAMILIES.into_iter().zip(values) {
            if usages.iter().all(|usage| value(usage).is_none()) {
                continue;
            }
            let mut family = sink.begin(family, ["arena"]);
            for ((name, _), usage) in self.arenas.iter().zip(&usages) {
                if let Some(bytes) = value(usage) {
                    family.sample([name], bytes);
                }
            }
        }
    }
}

const fn family(name: &'static str, help: &'static str) -> FamilyHeader<'static> {
    FamilyHeader::new(Kind::Gauge, name, help).unit("bytes")
}

const FAMILIES: [FamilyHeader<'static>; 4] = [
    family("arena_reserved_bytes", "Memory that was taken from the base allocator."),
    family("arena_allocated_bytes", "Memory that is allocated, including padding for alignment."),
    family("arena_peak_bytes", "Peak of the memory that was taken."),
    family("arena_limit_bytes", "Limit of the memory that may be taken."),
];

mod sealed {
    use super::{ArenaUsage, BaseAllocator, LimitedAllocator, Policy, Pool, SharedArena};

    pub trait ArenaMeasure {
        #[doc(hidden)]
        #[expect(private_interfaces)]
        fn usage(&self) -> ArenaUsage;
    }

    #[expect(private_interfaces)]
    impl<A> ArenaMeasure for LimitedAllocator<A> {
        fn usage(&self) -> ArenaUsage {
            let (reserved, peak, limit) = (self.used(), self.peak(), self.limit());
            ArenaUsage {
                reserved: Some(reserved),
                allocated: None,
                peak: Some(peak),
                // Unlimited: show no limit.
                limit: (limit != usize::MAX).then_some(limit),
            }
        }
    }

    #[expect(private_interfaces)]
    impl<A: BaseAllocator> ArenaMeasure for SharedArena<A> {
        fn usage(&self) -> ArenaUsage {
            let stats = self.stats();
            let (reserved, allocated) = (Some(stats.reserved), Some(stats.allocated));
            ArenaUsage { reserved, allocated, ..ArenaUsage::default() }
        }
    }

    /// For a pool, the memory of the idle arenas, because the arenas in use belong to their users.
    #[expect(private_interfaces)]
    impl<P: Policy, A: BaseAllocator + Clone> ArenaMeasure for Pool<P, A> {
        fn usage(&self) -> ArenaUsage {
            ArenaUsage { reserved: Some(self.reserved()), ..ArenaUsage::default() }
        }
    }
}
