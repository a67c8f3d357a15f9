//! Runs a change of groups (a push, a deletion, a wipe or an expiry) in short steps, so a large
//! change does not block the other requests of its thread. The gate excludes scrapes and other
//! changes from the first to the last step.

use hyper::StatusCode;

use super::INPUT;
use super::builder::PushError;
use super::check::check;
use super::groups::{Groups, Key, MAX_SHAPES};
use super::routes::{PushGateway, now};
use super::update::{self, GroupUpdate, UpdateOutcome};
use crate::Inputs;
use crate::gate::{ReplacementGuard, WaitingReplacement};
use crate::refusal::Refusal;
use quipu_http::{Response, Steps, text};

/// A change of groups, requested by a client or due by time.
pub(super) enum Change {
    /// A push to a group.
    Push(Box<update::ParsedPush>),
    /// Stores the time of a failed push, and then returns the response.
    Fail(Key, Response),
    /// Removes a group.
    Delete(Key),
    /// Removes all groups. After the first step, the list contains the keys of the remaining
    /// groups.
    Wipe(Option<Vec<Key>>),
    /// Hides the groups that have expired.
    Expire,
    /// The change is complete, and this is its response.
    Done(Response),
}

/// A change in progress.
pub(super) struct ChangeSteps {
    push: &'static PushGateway,
    inputs: Inputs,
    /// The remaining part of the change.
    change: Change,
    /// The group of a push, and whether the push adds to the current values.
    pushed: Option<(Key, bool)>,
    begun: Option<ExclusiveUpdate>,
    place: Option<WaitingReplacement<'static>>,
    is_waiting: bool,
}

/// An update in progress, which holds the gate. A scrape sees either all changes or none.
#[derive(Debug)]
pub(super) struct ExclusiveUpdate {
    pub(super) update: GroupUpdate,
    _gate: ReplacementGuard<'static>,
}

impl ChangeSteps {
    pub(super) fn new(push: &'static PushGateway, inputs: &Inputs, change: Change) -> Self {
        let inputs = inputs.clone();
        Self { push, inputs, change, pushed: None, begun: None, place: None, is_waiting: false }
    }

    /// Begins the next update of a group. Returns `None` after the last one.
    fn begin(&mut self) -> Option<GroupUpdate> {
        let done = || Change::Done(text(StatusCode::ACCEPTED, ""));
        let mut groups = self.push.groups();
        match &mut self.change {
            Change::Done(_) => None,
            Change::Push(_) => {
                let Change::Push(push) = std::mem::replace(&mut self.change, done()) else {
                    return None;
                };
                drop(groups);
                self.begin_push(*push)
            }
            Change::Fail(key, response) => {
                let (key, response) = (key.clone(), std::mem::take(response));
                self.change = Change::Done(response);
                let room = self.make_room(&mut groups, &key);
                let expiry = self.push.settings().expiry;
                room.ok().map(|room| GroupUpdate::fail(&mut groups, key, now(), expiry).after(room))
            }
            Change::Delete(key) => {
                let update = GroupUpdate::delete(&mut groups, key);
                self.change = done();
                Some(update)
            }
            Change::Wipe(keys) => match keys.get_or_insert_with(|| groups.keys()).pop() {
                Some(key) => Some(GroupUpdate::delete(&mut groups, &key)),
                None => {
                    self.change = done();
                    None
                }
            },
            Change::Expire => match groups.next_to_expire(now()) {
                Some(key) => Some(GroupUpdate::expire(&mut groups, &key)),
                None => {
                    self.change = done();
                    None
                }
            },
        }
    }

    fn begin_push(&mut self, push: update::ParsedPush) -> Option<GroupUpdate> {
        let settings = self.push.settings();
        let mut groups = self.push.groups();
        let status = if settings.checks { StatusCode::OK } else { StatusCode::ACCEPTED };
        self.change = Change::Done(text(status, ""));
        let group = groups.group(&push.key);
        let id = push.options.id.filter(|_| push.options.adds());
        if let (Some(id), Some(group)) = (id, group)
            && let Some(fault) = group.find_fault(id)
        {
            if let Some(detail) = fault {
                self.change = Change::Done(Refusal::bad(detail).respond());
            }
            return None;
        }
        let refused = |fault: &PushError| {
            let job = &push.content.job;
            self.inputs.refusals().refuse(INPUT, job, fault.reason(), fault);
        };
        let room = match self.make_room(&mut groups, &push.key) {
            Ok(room) => room,
            Err(detail) => {
                refused(&PushError::Malformed(detail.clone()));
                self.change = Change::Done(text(StatusCode::TOO_MANY_REQUESTS, detail + "\n"));
                return None;
            }
        };
        let checked = match settings.checks {
            true => check(
                &mut groups,
                &push.key,
                &push.content.families,
                push.removes,
                push.options.adds(),
            ),
            false => Ok(()),
        };
        Some(
            match checked {
                Ok(()) => {
                    self.pushed = Some((push.key.clone(), push.options.adds()));
                    GroupUpdate::push(&mut groups, push)
                }
                Err(detail) => {
                    let fault = PushError::Inconsistent(detail);
                    refused(&fault);
                    self.change = Change::Done(Refusal::bad(fault).respond());
                    GroupUpdate::fail(&mut groups, push.key, push.now, push.expiry)
                }
            }
            .after(room),
        )
    }

    /// Makes room for a new group, by removing the group that expired first.
    fn make_room(&self, groups: &mut Groups, key: &Key) -> Result<GroupUpdate, String> {
        let most = self.push.settings().groups;
        if groups.group(key).is_some() {
            return Ok(GroupUpdate::default());
        }
        if !groups.has_room_for_shape(key) {
            return Err(format!(
                "there are groups with {MAX_SHAPES} different sets of label names: use the label \
                 names of other groups, or delete some"
            ));
        }
        if groups.len() < most {
            return Ok(GroupUpdate::default());
        }
        match groups.oldest_expired().or_else(|| groups.next_to_expire(now())) {
            Some(key) => Ok(GroupUpdate::delete(groups, &key)),
            None => Err(format!(
                "the limit of {most} groups is reached: delete some, let them expire \
                 (--push-expiry), or raise --push-groups"
            )),
        }
    }

    /// Sets the response for a push with refused series. If the state is full, the response asks
    /// the client to retry, unless a retry would add the accepted part twice.
    fn refuse(&mut self, outcome: &UpdateOutcome) {
        let Some((key, adds)) = self.pushed.take() else { return };
        let Some(detail) = outcome.fault() else { return };
        let may_be_repeated = !adds || outcome.taken == 0;
        let response = if outcome.is_full && may_be_repeated {
            Refusal::unavailable(detail, "1").respond()
        } else {
            Refusal::bad(detail).respond()
        };
        self.change = Change::Fail(key, response);
    }
}

impl Steps for ChangeSteps {
    fn step(&mut self) -> Option<Response> {
        self.is_waiting = false;
        if self.begun.is_none() {
            if let Change::Done(response) = &mut self.change {
                return Some(std::mem::take(response));
            }
            if !self.push.is_ready() {
                self.is_waiting = true;
                return None;
            }
            let Some(gate) = self.inputs.shared().gate.replace(&mut self.place) else {
                self.push.continue_parked(&mut self.inputs.intake(), self.inputs.refusals());
                self.is_waiting = true;
                return None;
            };
            self.begun = self.begin().map(|update| ExclusiveUpdate { update, _gate: gate });
        }
        // We take the update out first, because a panic must drop it.
        if let Some(mut begun) = self.begun.take() {
            let (index, refusals) = (self.push.index(), self.inputs.refusals());
            let outcome = begun.update.step(index, &mut self.inputs.intake(), refusals);
            let Some(outcome) = outcome else {
                self.begun = Some(begun);
                return None;
            };
            self.refuse(&outcome);
        }
        match &mut self.change {
            Change::Done(response) => Some(std::mem::take(response)),
            _ => None,
        }
    }

    fn is_waiting(&self) -> bool {
        self.is_waiting
    }
}

impl Drop for ChangeSteps {
    /// Leaves the unfinished change to other requests, because a client that disconnects must not
    /// leave a group half changed.
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.push.park(begun);
        }
    }
}
