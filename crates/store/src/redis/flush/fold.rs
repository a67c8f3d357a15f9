//! Moves to the archive: series that no longer exist, and dead instances.

use ::redis::Value;

use super::diff::Handle;
use super::{Flusher, MAX_CALLS, MAX_PAIRS, millis};
use crate::redis::key::{MetricKeys, is_note};
use crate::redis::link::{Call, Failure, Link, items, text};
use crate::redis::script::{FOLD, FORGET};

impl Flusher {
    /// Moves the fields of series that no longer exist to the archive.
    pub(super) fn retire(&mut self, link: &mut Link) -> Result<(), Failure> {
        for handle in self.state.strays() {
            self.retire_of(link, handle)?;
        }
        Ok(())
    }

    fn retire_of(&mut self, link: &mut Link, handle: Handle) -> Result<(), Failure> {
        let metric = &mut self.state[handle];
        // If they were not collected yet, the next flush collects them.
        let Some(fields) = metric.fields.take() else { return Ok(()) };
        metric.has_strays = false;
        let replies = link.run(&[Call::plain("HKEYS", &metric.keys[0])])?;
        let all = replies.first().map(items).unwrap_or_default().iter().filter_map(text);
        let gone: Vec<&str> =
            all.filter(|field| !is_note(field) && !fields.contains(*field)).collect();
        for gone in gone.chunks(MAX_PAIRS) {
            let how = if metric.meta.how.is_sum() { "sum" } else { "drop" };
            let (id, sequence) = (self.instance.id(), self.instance.next_write());
            link.run(&[metric.write(id, how, sequence, None, gone)])?;
        }
        metric.sent.retain(|_, sent| !sent.is_gone);
        Ok(())
    }

    /// Folds dead instances. Returns the number of instances that contained values, and why one
    /// could not be folded.
    pub(super) fn fold(&self, link: &mut Link, dead: &[String]) -> (u64, Option<Failure>) {
        let (mut folded, mut unfolded) = (0, None);
        for id in dead {
            match self.fold_one(link, id) {
                Ok(was_there) => folded += u64::from(was_there),
                Err(failure) => {
                    let is_gone = failure.cause.is_of_link();
                    unfolded = Some(failure);
                    if is_gone {
                        break;
                    }
                }
            }
        }
        (folded, unfolded)
    }

    /// Folds a dead instance. Returns whether it contained any values. If this process dies during
    /// the fold, another one folds the rest.
    fn fold_one(&self, link: &mut Link, id: &str) -> Result<bool, Failure> {
        let replies = link.run(&[Call::plain("SMEMBERS", &self.global.metrics)])?;
        let metrics: Vec<&str> =
            replies.first().map(items).unwrap_or_default().iter().filter_map(text).collect();
        let keep = millis(self.options.keep).max(1).to_string();
        let mut was_there = false;
        for metrics in metrics.chunks(MAX_CALLS) {
            let calls = metrics.iter().map(|metric| {
                let keys = MetricKeys::new(&self.options.namespace, metric);
                let mut call = Call::new(&FOLD, &keys.of_scripts(id));
                call.arg(id).arg(&keep);
                call
            });
            let answers = link.run(&calls.collect::<Vec<_>>())?;
            was_there |= answers.contains(&Value::Int(1));
        }
        let mut forget = Call::new(&FORGET, &self.global.of_instances());
        forget.arg(id).arg(&millis(self.options.dead_after).to_string());
        forget.arg(if was_there { "1" } else { "0" });
        link.run(&[forget])?;
        Ok(was_there)
    }
}
