//! Changes of groups in the steps of a request. No scrape and no other change runs between the
//! first step of a change and its last.

use hyper::StatusCode;

use super::INPUT;
use super::builder::Fault;
use super::check::check;
use super::groups::{Groups, Key, MAX_SHAPES};
use super::routes::{Push, now};
use super::update::{self, Outcome, Work};
use crate::Inputs;
use crate::gate::{ReplacementGuard, WaitingReplacement};
use crate::refusal::Refusal;
use quipu_http::{Response, Steps, text};

/// What is to change.
pub(super) enum Change {
    /// A push to a group.
    Push(Box<update::Push>),
    /// A push failed; with the response.
    Fail(Key, Response),
    /// A group goes.
    Delete(Key),
    /// All groups go: those that are left.
    Wipe(Option<Vec<Key>>),
    /// Groups whose time is over are hidden.
    Expire,
    /// Nothing more; with the response.
    Nothing(Response),
}

/// Applies a change.
pub(super) struct Changing {
    push: &'static Push,
    inputs: Inputs,
    /// What comes next.
    change: Change,
    /// The group that is pushed to, and whether the push is added to it.
    pushed: Option<(Key, bool)>,
    begun: Option<Begun>,
    place: Option<WaitingReplacement<'static>>,
    is_waiting: bool,
}

/// A change of the segment that has begun, and that scrapes do not see before its end.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) work: Work,
    _gate: ReplacementGuard<'static>,
}

impl Changing {
    pub(super) fn new(push: &'static Push, inputs: &Inputs, change: Change) -> Self {
        let inputs = inputs.clone();
        Self { push, inputs, change, pushed: None, begun: None, place: None, is_waiting: false }
    }

    /// Begins what comes next. `None` if nothing does.
    fn begin(&mut self) -> Option<Work> {
        let done = || Change::Nothing(text(StatusCode::ACCEPTED, ""));
        let mut groups = self.push.groups();
        match &mut self.change {
            Change::Nothing(_) => None,
            Change::Push(_) => {
                let Change::Push(push) = std::mem::replace(&mut self.change, done()) else {
                    return None;
                };
                drop(groups);
                self.begin_push(*push)
            }
            Change::Fail(key, response) => {
                let (key, response) = (key.clone(), std::mem::take(response));
                self.change = Change::Nothing(response);
                let room = self.make_room(&mut groups, &key);
                let expiry = self.push.settings().expiry;
                room.ok().map(|room| Work::fail(&mut groups, key, now(), expiry).after(room))
            }
            Change::Delete(key) => {
                let work = Work::delete(&mut groups, key);
                self.change = done();
                Some(work)
            }
            Change::Wipe(keys) => match keys.get_or_insert_with(|| groups.keys()).pop() {
                Some(key) => Some(Work::delete(&mut groups, &key)),
                None => {
                    self.change = done();
                    None
                }
            },
            Change::Expire => match groups.next_to_expire(now()) {
                Some(key) => Some(Work::expire(&mut groups, &key)),
                None => {
                    self.change = done();
                    None
                }
            },
        }
    }

    fn begin_push(&mut self, push: update::Push) -> Option<Work> {
        let settings = self.push.settings();
        let mut groups = self.push.groups();
        let status = if settings.checks { StatusCode::OK } else { StatusCode::ACCEPTED };
        self.change = Change::Nothing(text(status, ""));
        let group = groups.group(&push.key);
        let id = push.options.id.filter(|_| push.options.adds());
        if let (Some(id), Some(group)) = (id, group)
            && let Some(told) = group.told(id)
        {
            if let Some(what) = told {
                self.change = Change::Nothing(Refusal::bad(what).respond());
            }
            return None;
        }
        let refused = |fault: &Fault| {
            let job = &push.content.job;
            self.inputs.refusals().refuse(INPUT, job, fault.reason(), fault);
        };
        let room = match self.make_room(&mut groups, &push.key) {
            Ok(room) => room,
            Err(what) => {
                refused(&Fault::Malformed(what.clone()));
                self.change = Change::Nothing(text(StatusCode::TOO_MANY_REQUESTS, what + "\n"));
                return None;
            }
        };
        let checked = match settings.checks {
            true => check(&mut groups, &push.key, &push.content.families, push.removes),
            false => Ok(()),
        };
        Some(
            match checked {
                Ok(()) => {
                    self.pushed = Some((push.key.clone(), push.options.adds()));
                    Work::push(&mut groups, push)
                }
                Err(what) => {
                    let fault = Fault::Inconsistent(what);
                    refused(&fault);
                    self.change = Change::Nothing(Refusal::bad(fault).respond());
                    Work::fail(&mut groups, push.key, push.now, push.expiry)
                }
            }
            .after(room),
        )
    }

    /// Makes room for a group, unless it is there: the one that expired first goes.
    fn make_room(&self, groups: &mut Groups, key: &Key) -> Result<Work, String> {
        let most = self.push.settings().groups;
        if groups.group(key).is_some() {
            return Ok(Work::default());
        }
        if !groups.has_room_for_shape(key) {
            return Err(format!(
                "there are groups with {MAX_SHAPES} different sets of label names: use the label \
                 names of other groups, or delete some"
            ));
        }
        if groups.len() < most {
            return Ok(Work::default());
        }
        match groups.oldest_expired().or_else(|| groups.next_to_expire(now())) {
            Some(key) => Ok(Work::delete(groups, &key)),
            None => Err(format!(
                "the limit of {most} groups is reached: delete some, let them expire \
                 (--push-expiry), or raise --push-groups"
            )),
        }
    }

    /// Notes that something of a push was refused. If the state has no room, the client can send
    /// the push again, unless a part of it would then be added twice.
    fn refuse(&mut self, outcome: &Outcome) {
        let Some((key, adds)) = self.pushed.take() else { return };
        let Some(what) = outcome.fault() else { return };
        let may_come_again = !adds || outcome.taken == 0;
        let response = if outcome.is_full && may_come_again {
            Refusal::unavailable(what, "1").respond()
        } else {
            Refusal::bad(what).respond()
        };
        self.change = Change::Fail(key, response);
    }
}

impl Steps for Changing {
    fn step(&mut self) -> Option<Response> {
        self.is_waiting = false;
        if self.begun.is_none() {
            if let Change::Nothing(response) = &mut self.change {
                return Some(std::mem::take(response));
            }
            if !self.push.is_ready() {
                self.is_waiting = true;
                return None;
            }
            let Some(gate) = self.inputs.shared().gate.replace(&mut self.place) else {
                self.push.go_on(&mut self.inputs.intake(), self.inputs.refusals());
                self.is_waiting = true;
                return None;
            };
            self.begun = self.begin().map(|work| Begun { work, _gate: gate });
        }
        // A panic drops it.
        if let Some(mut begun) = self.begun.take() {
            let (index, refusals) = (self.push.index(), self.inputs.refusals());
            let outcome = begun.work.step(index, &mut self.inputs.intake(), refusals);
            let Some(outcome) = outcome else {
                self.begun = Some(begun);
                return None;
            };
            self.refuse(&outcome);
        }
        match &mut self.change {
            Change::Nothing(response) => Some(std::mem::take(response)),
            _ => None,
        }
    }

    fn is_waiting(&self) -> bool {
        self.is_waiting
    }
}

impl Drop for Changing {
    /// A client that closes its connection leaves no change half done.
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.push.park(begun);
        }
    }
}
