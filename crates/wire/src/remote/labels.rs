//! The labels of a series, and the conversion of messages to samples.

use alloc::vec::Vec;
use core::str;

use crate::error::Fault;
use crate::message::Message;

/// A label's name and value.
pub type Label<'a> = (&'a str, &'a str);

/// The label that contains the name of the metric.
pub(super) const NAME: &str = "__name__";

/// Returns the labels sorted by name, without empty ones, because an empty value means the same as
/// no label.
pub(super) fn canonical<'l, 'a>(
    labels: &'l [Label<'a>],
    room: &'l mut Vec<Label<'a>>,
) -> Result<&'l [Label<'a>], Fault> {
    let ascending = labels.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let labels = if ascending && labels.iter().all(|label| !label.1.is_empty()) {
        labels
    } else {
        room.extend(labels.iter().filter(|label| !label.1.is_empty()));
        sort(room).map_err(|()| Fault::unwritable("each label may appear only once"))?;
        room
    };
    if labels.first().is_none_or(|label| label.0.is_empty()) {
        return Err(Fault::unwritable("a series needs a label, and each label a name"));
    }
    Ok(labels)
}

/// Sorts by name. Returns an error if a name appears twice.
pub(super) fn sort(labels: &mut [Label<'_>]) -> Result<(), ()> {
    if labels.windows(2).all(|pair| pair[0].0 < pair[1].0) {
        return Ok(());
    }
    labels.sort_unstable();
    match labels.windows(2).all(|pair| pair[0].0 < pair[1].0) {
        true => Ok(()),
        false => Err(()),
    }
}

/// Returns the labels of an id, `name=x,a=b` or only a name, sorted by name. They include the
/// metric's name.
pub(super) fn of_id(id: &[u8]) -> Result<Vec<Label<'_>>, Fault> {
    let id = str::from_utf8(id)
        .map_err(|_| Fault::unwritable("an id must be UTF-8: `name=x,label=value` or a name"))?;
    Ok(id_labels(id).unwrap_or_else(|| [(NAME, id)].into()))
}

/// Returns the labels of an id of the form `name=x,a=b`, sorted by name. The name becomes the label
/// `__name__`. Returns `None` for any other id.
#[doc(hidden)]
pub fn id_labels(id: &str) -> Option<Vec<Label<'_>>> {
    let mut labels = Vec::new();
    let mut named = false;
    for pair in id.split(',') {
        let (name, value) = pair.split_once('=')?;
        match name {
            "" => return None,
            "name" if value.is_empty() => return None,
            "name" => {
                named = true;
                labels.push((NAME, value));
            }
            _ => labels.push((name, value)),
        }
    }
    sort(&mut labels).ok()?;
    named.then_some(labels)
}

/// Unwraps a union to the metric that it contains.
pub(super) fn metric<'m>(message: &Message<'m>) -> Result<Message<'m>, Fault> {
    match message {
        Message::MetricUnion(union) => union.to_metric().ok_or(Fault::unwritable(
            "a union needs the type of a metric, and no value of another type",
        )),
        metric => Ok(*metric),
    }
}

/// Returns the sum of a batch. This starts at +0, because `Iterator::sum` of an empty batch would
/// be -0.
pub(super) fn sum(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_labels_or_a_name() {
        let ascii: &[Label<'_>] = &[(NAME, "bulbasaur"), ("trainer", "ash"), ("type", "grass")];
        assert_eq!(of_id(b"name=bulbasaur,trainer=ash,type=grass").unwrap(), ascii);
        assert_eq!(of_id(b"type=grass,name=bulbasaur,trainer=ash").unwrap(), ascii);
        assert_eq!(of_id(b"name=x,a=b=c,A=").unwrap(), [("A", ""), (NAME, "x"), ("a", "b=c")]);
        for name in [
            "hits",
            "",
            "a=b",
            "name=",
            "name=x,",
            "name=x,a",
            "name=x,=b",
            "name=x,name=y",
            "name=x,a=1,a=2",
            "name=x,__name__=y",
            "caf\u{e9} total",
        ] {
            assert_eq!(of_id(name.as_bytes()).unwrap(), [(NAME, name)]);
        }
        assert!(of_id(b"name=x,a=\xff").is_err());
    }

    #[test]
    fn labels_are_put_in_order() {
        let sorted = [("a", "1"), ("b", "2")];
        assert_eq!(canonical(&sorted, &mut Vec::new()).unwrap(), sorted);
        let mixed = [("b", "2"), ("c", ""), ("a", "1")];
        assert_eq!(canonical(&mixed, &mut Vec::new()).unwrap(), sorted);
        for bad in [&[][..], &[("a", "")], &[("", "1")], &[("a", "1"), ("a", "2")]] {
            assert!(canonical(bad, &mut Vec::new()).is_err(), "{bad:?}");
        }
    }
}
