//! The claims of this process in a segment: the owner of each, and the free ones.
//!
//! A thread that updates series owns a line in a block of its process. The first word of the line
//! is the thread's claim. The others are for nested updates, for example in a signal handler. A few
//! words of thread-local memory lead to the line, and the thread returns the line when it ends. A
//! child of a fork shares its parent's memory but none of its claims, so all state here is stored
//! together with the generation of the process.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ptr;
use std::sync::Weak;
use std::sync::atomic::{AtomicPtr, compiler_fence};

use crate::barrier;
use crate::claims::{self, Block, Blocks, HANDLE, LINE, MAX_LINES, MIN_LINES, Stack};
use crate::fork;
use crate::layout::{HEADER_BYTES, at};
use crate::lock;
use crate::offset::{self, WordOffset};
use crate::region::Region;
use crate::segment::Segment;
use crate::sync::{Arc, AtomicU64, Ordering};

/// This process's state of its claims in a segment.
#[derive(Debug)]
pub(crate) struct Slots {
    /// A number unique among all segments that this process opens.
    id: u64,
    own: AtomicPtr<ProcessClaims>,
}

/// The claims of one process. A child of a fork begins with none. It keeps its parent's memory,
/// because another thread may have been changing it.
#[derive(Debug)]
struct ProcessClaims {
    generation: u32,
    /// Whether the threads of this process rely on the barriers of others.
    relies: bool,
    /// Lines that belong to no thread, and words that belong to no handle.
    lines: Stack,
    handles: Stack,
    /// The total number of lines.
    count: AtomicU64,
    before: *mut ProcessClaims,
}

/// The claim of a thread, until it is dropped.
pub(crate) struct Claim<'r> {
    word: &'r AtomicU64,
    generation: u32,
    relies: bool,
    /// The offset of the word, if it must be freed afterwards.
    back: Option<(&'r Region, WordOffset)>,
    /// Not `Send`: it belongs to this thread.
    thread: PhantomData<*const ()>,
}

/// Sets the claim of a thread.
#[derive(Clone, Copy)]
pub(crate) struct ClaimSetter<'r> {
    word: &'r AtomicU64,
    relies: bool,
}

/// The claim of a handle: the offset of its word. You must return it to the free words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HandleClaim(pub(crate) WordOffset);

/// A cache of the address of this thread's line in a segment.
struct CachedLine {
    /// The ID of the segment; 0 for none.
    id: Cell<u64>,
    generation: Cell<u32>,
    relies: Cell<bool>,
    line: Cell<*const AtomicU64>,
}

/// A line of this thread in a segment. It is returned on drop.
struct OwnedLine {
    region: Weak<Region>,
    id: u64,
    generation: u32,
    line: WordOffset,
}

/// The number of cached lines of a thread. Most programs use fewer segments at a time.
const SLOTS: usize = 4;

thread_local! {
    static NEAR: [CachedLine; SLOTS] = const { [const { CachedLine::new() }; SLOTS] };
    /// Whether this thread is filling a slot of `NEAR`.
    static IS_FILLING: Cell<bool> = const { Cell::new(false) };
    static OWNED: RefCell<Vec<OwnedLine>> = const { RefCell::new(Vec::new()) };
}

impl<'r> Claim<'r> {
    /// Claims a record, and clears the previous claim. You must then check the record's meta word:
    /// the record is claimed if it contains a series.
    #[inline]
    pub(crate) fn set(&self, record: WordOffset) {
        self.hold().set(record);
    }

    /// Returns a setter for the claim. It does not refer to the claim, which can therefore stay in
    /// registers. You must not use the setter after the claim is dropped.
    #[inline]
    pub(crate) fn hold(&self) -> ClaimSetter<'r> {
        ClaimSetter { word: self.word, relies: self.relies }
    }
}

impl ClaimSetter<'_> {
    /// Like [`Claim::set`].
    #[inline]
    pub(crate) fn set(self, record: WordOffset) {
        claims::claim(self.word, record.pack(), self.relies);
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        // In a child that was forked since, the word belongs to its parent.
        if self.generation == fork::generation() {
            match self.back {
                None => claims::release(self.word),
                Some((region, at)) => region.slots.own().handles.push(region, at),
            }
        }
    }
}

impl Region {
    /// Returns this thread's claim, if it is cached and free.
    #[inline]
    pub(crate) fn claim_at_hand(&self) -> Option<Claim<'_>> {
        let generation = fork::generation();
        let (line, relies) = NEAR.with(|near| {
            let slot = self.slots.near(near);
            let is_it = slot.id.get() == self.slots.id && slot.generation.get() == generation;
            is_it.then(|| (slot.line.get(), slot.relies.get()))
        })?;
        // SAFETY: the line lies in this region, because the ID is this region's.
        let word = unsafe { &*line };
        // Only this thread and its signal handlers use the word.
        let is_free = word.load(Ordering::Relaxed) == 0;
        is_free.then(|| Claim { word, generation, relies, back: None, thread: PhantomData })
    }

    /// Stores a handle's claim on a record. You must then check the record, like for a thread's
    /// claim.
    pub(crate) fn set_handle(&self, claim: HandleClaim, record: WordOffset) {
        // Always use a fence, because handles are seldom created.
        claims::claim(self.word_at(claim.0), HANDLE | record.pack(), false);
    }

    /// Frees the claim of a handle of this process.
    pub(crate) fn give_back(&self, claim: HandleClaim) {
        self.slots.own().handles.push(self, claim.0);
    }

    #[inline]
    fn word_at(&self, at: WordOffset) -> &AtomicU64 {
        self.cell(at.byte())
    }

    fn give_line_back(&self, line: WordOffset) {
        for at in words_of(line) {
            claims::release(self.word_at(at));
        }
        self.slots.own().lines.push(self, line);
    }
}

impl claims::Memory for Region {
    #[inline]
    fn word(&self, at: WordOffset) -> &AtomicU64 {
        self.word_at(at)
    }

    #[inline]
    fn words(&self, at: WordOffset, count: u32) -> &[AtomicU64] {
        self.slice(at.byte(), count as usize)
    }

    #[inline]
    fn known_words(&self, at: WordOffset, count: u32) -> &[AtomicU64] {
        self.known_slice(at, count as usize)
    }
}

impl Segment {
    /// Returns a claim for this thread; `None` if the segment is full.
    #[inline]
    pub(crate) fn claim(&self) -> Option<Claim<'_>> {
        self.region.claim_at_hand().or_else(|| self.find_claim())
    }

    #[cold]
    pub(crate) fn find_claim(&self) -> Option<Claim<'_>> {
        let (generation, own) = (fork::generation(), self.region.slots.own());
        let claim = |at: WordOffset, back| Claim {
            word: self.region.word_at(at),
            generation,
            relies: own.relies,
            back,
            thread: PhantomData,
        };
        if let Some(line) = self.own_line(own, generation) {
            // The first word is in use during an update.
            let is_free = |at: &WordOffset| self.region.word_at(*at).load(Ordering::Relaxed) == 0;
            if let Some(at) = words_of(line).find(is_free) {
                return Some(claim(at, None));
            }
        }
        // The thread is ending, or was interrupted right here, or its updates are nested deeply.
        let at = self.take_handle(own)?;
        Some(claim(at, Some((&*self.region, at))))
    }

    /// Returns a claim for a handle; `None` if the segment is full.
    pub(crate) fn claim_for_handle(&self) -> Option<HandleClaim> {
        self.take_handle(self.region.slots.own()).map(HandleClaim)
    }

    /// Returns the blocks of claims.
    pub(crate) fn claim_blocks(&self) -> Blocks<'_, Region> {
        let root = self.region.cell(at::CLAIMS);
        let end = offset::words(self.used()).min(u32::MAX.into());
        Blocks { memory: &*self.region, root, end }
    }

    /// Returns the line of this thread; reserves one if there is none.
    fn own_line(&self, own: &ProcessClaims, generation: u32) -> Option<WordOffset> {
        let slots = &self.region.slots;
        let line = OWNED.try_with(|owned| {
            let mut owned = owned.try_borrow_mut().ok()?;
            let is_it = |one: &&OwnedLine| one.id == slots.id && one.generation == generation;
            if let Some(found) = owned.iter().find(is_it) {
                return Some(found.line);
            }
            owned.retain(|one| one.generation == generation && one.region.strong_count() > 0);
            let line = self.take_line(own)?;
            let region = Arc::downgrade(&self.region);
            owned.push(OwnedLine { region, id: slots.id, generation, line });
            Some(line)
        });
        let line = line.ok().flatten()?;
        // A signal handler that interrupts this must not fill the slot, because the two stores
        // would mix two segments.
        if !IS_FILLING.replace(true) {
            NEAR.with(|near| {
                let slot = slots.near(near);
                slot.empty();
                slot.generation.set(generation);
                slot.relies.set(own.relies);
                slot.line.set(self.region.word_at(line));
                // A signal handler finds the slot either empty or complete.
                compiler_fence(Ordering::Release);
                slot.id.set(slots.id);
            });
            compiler_fence(Ordering::Release);
            IS_FILLING.set(false);
        }
        Some(line)
    }

    fn take_handle(&self, own: &ProcessClaims) -> Option<WordOffset> {
        own.handles.pop(&*self.region).or_else(|| {
            let line = self.take_line(own)?;
            words_of(line).skip(1).for_each(|at| own.handles.push(&*self.region, at));
            Some(line)
        })
    }

    fn take_line(&self, own: &ProcessClaims) -> Option<WordOffset> {
        let region = &*self.region;
        // False only if another process wrote nonsense into a link.
        let is_line = |line: &WordOffset| {
            let at = line.byte();
            line.get().is_multiple_of(LINE)
                && at.get() >= HEADER_BYTES
                && region.has(at, offset::bytes(LINE.into()))
        };
        own.lines.pop(region).filter(is_line).or_else(|| {
            // Processors fetch lines in pairs, so two threads with neighbouring lines would
            // contend. The lines in between are for handles, whose claims seldom change.
            let mut is_for_threads = true;
            let mut first = None;
            for line in self.take_block(own)?.claim_lines() {
                if !is_for_threads {
                    words_of(line).for_each(|at| own.handles.push(region, at));
                } else if first.is_none() {
                    first = Some(line);
                } else {
                    own.lines.push(region, line);
                }
                is_for_threads = !is_for_threads;
            }
            first
        })
    }

    /// Adds a block to this process: the block of an ended process, or a new one.
    fn take_block(&self, own: &ProcessClaims) -> Option<Block> {
        let (region, blocks) = (&*self.region, self.claim_blocks());
        let token = region.token().ok()?;
        let is_alive = |token| region.is_alive(token);
        let block = blocks.take_over(token, own.relies, is_alive).or_else(|| {
            // The cast is safe, because the number is at most 1024.
            let half = own.count.load(Ordering::Relaxed) / 2;
            let lines = half.clamp(MIN_LINES.into(), MAX_LINES.into()) as u32;
            let at = self.take((lines * LINE).into(), lock::UPDATE).ok()?;
            let block = Block { at, lines };
            blocks.add(block, token, own.relies);
            Some(block)
        })?;
        own.count.fetch_add(block.lines.into(), Ordering::Relaxed);
        Some(block)
    }
}

/// Returns the words of a line.
fn words_of(line: WordOffset) -> impl Iterator<Item = WordOffset> {
    (0..LINE).map(move |i| line.plus(i))
}

impl Slots {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Register now, because this takes a while once there are other threads.
        barrier::register();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { id, own: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline]
    fn near<'n>(&self, near: &'n [CachedLine; SLOTS]) -> &'n CachedLine {
        &near[self.id as usize % SLOTS]
    }

    fn own(&self) -> &ProcessClaims {
        // Acquire: sees the claims that the pointer refers to.
        let own = self.own.load(Ordering::Acquire);
        // SAFETY: a stored value is not freed before `self` is dropped.
        match unsafe { own.as_ref() } {
            Some(own) if own.generation == fork::generation() => own,
            _ => self.renew(own),
        }
    }

    #[cold]
    fn renew(&self, before: *mut ProcessClaims) -> &ProcessClaims {
        let own = Box::into_raw(Box::new(ProcessClaims {
            generation: fork::generation(),
            relies: barrier::register(),
            lines: Stack::default(),
            handles: Stack::default(),
            count: AtomicU64::new(0),
            before,
        }));
        // Release: a thread that finds the claims sees them complete. Acquire: another thread may
        // have been faster.
        let own = match self.own.compare_exchange(before, own, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => own,
            Err(found) => {
                // SAFETY: no other thread knows of these claims.
                drop(unsafe { Box::from_raw(own) });
                found
            }
        };
        // SAFETY: like in `own`.
        unsafe { &*own }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let mut own = *self.own.get_mut();
        while !own.is_null() {
            // SAFETY: each is from a box and was stored once, and `self` is not shared any more.
            own = unsafe { Box::from_raw(own) }.before;
        }
    }
}

impl CachedLine {
    const fn new() -> Self {
        let (id, generation) = (Cell::new(0), Cell::new(0));
        Self { id, generation, relies: Cell::new(false), line: Cell::new(ptr::null()) }
    }

    fn empty(&self) {
        self.id.set(0);
        // A signal handler sees the ID cleared before anything else changes.
        compiler_fence(Ordering::Release);
    }
}

impl Drop for OwnedLine {
    fn drop(&mut self) {
        NEAR.with(|near| {
            let slot = &near[self.id as usize % SLOTS];
            if slot.id.get() == self.id {
                slot.empty();
            }
        });
        // A child of a fork shares its parent's thread-local memory, but not its lines.
        if self.generation == fork::generation()
            && let Some(region) = self.region.upgrade()
        {
            region.give_line_back(self.line);
        }
    }
}
