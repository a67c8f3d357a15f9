//! The scale of the values of a plot, with its ticks and its title.

use super::format;
use crate::record::Record;

/// The scale of the values.
pub(super) struct Axis {
    pub(super) logarithmic: bool,
    from: f64,
    to: f64,
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    /// Returns a scale for the medians and ranges of the records. It is logarithmic if the medians
    /// differ by more than a factor of `span`.
    pub(super) fn of(records: &[&Record], span: f64) -> Axis {
        let medians = || records.iter().map(|record| record.median).filter(|value| *value > 0.0);
        let least = medians().fold(f64::INFINITY, f64::min);
        let greatest = medians().fold(0.0, f64::max);
        let to = records.iter().map(|record| record.max).fold(greatest, f64::max);
        if greatest > span * least {
            // The shortest bar keeps some length, and the minimum of all runs stays inside.
            let low = records.iter().map(|r| r.min).filter(|v| *v > 0.0).fold(least, f64::min);
            let first = (low * 0.7).log10().floor() as i32;
            let last = to.log10().floor() as i32;
            let ticks = (first..=last).map(|power| 10f64.powi(power)).collect();
            return Axis { logarithmic: true, from: 10f64.powi(first), to, ticks };
        }
        let to = if to > 0.0 { to } else { 1.0 };
        let step = round_step(to / 5.0);
        let ticks = (0..=(to / step) as u32).map(|index| f64::from(index) * step).collect();
        Axis { logarithmic: false, from: 0.0, to, ticks }
    }

    /// The scale from the first to the last of these values, which are in order.
    pub(super) fn between(values: &[f64], span: f64) -> Axis {
        let (from, to) = (values.first().copied().unwrap_or(0.0), values.last().copied());
        let to = to.filter(|to| *to > from).unwrap_or(from + 1.0);
        Axis { logarithmic: from > 0.0 && to > span * from, from, to, ticks: Vec::new() }
    }

    /// The position of a value on the axis, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        share.clamp(0.0, 1.0)
    }

    /// Returns the label of a tick. The ticks of a logarithmic scale have a unit each, because it
    /// can differ.
    pub(super) fn label(&self, tick: f64, unit: &str) -> String {
        let scale = format::scale(if self.logarithmic { tick } else { self.to }, unit);
        let number = format::number(tick * scale.factor);
        let short = match number.contains('.') {
            true => number.trim_end_matches('0').trim_end_matches('.'),
            false => &number,
        };
        if self.logarithmic { format!("{short}{}", scale.unit) } else { short.into() }
    }

    /// Returns the title of the axis: the metric, the unit of this record, and whether the scale is
    /// logarithmic.
    pub(super) fn title(&self, metric: &str, record: &Record) -> String {
        let scale = format::scale(self.to, &record.unit);
        let unit = scale.unit.trim();
        match (self.logarithmic, unit) {
            (true, _) => format!("{metric}, logarithmic scale"),
            (false, "/s") => metric.into(),
            (false, unit) if unit == metric => metric.into(),
            (false, unit) => format!("{metric} in {unit}"),
        }
    }
}

/// Rounds a step up to 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Label;

    fn record(value: f64) -> Record {
        Label::new("bucketed/add", "s", "time", "ns").of(&[value])
    }

    fn axis(values: &[f64]) -> Axis {
        let records: Vec<Record> = values.iter().map(|value| record(*value)).collect();
        Axis::of(&records.iter().collect::<Vec<_>>(), 20.0)
    }

    #[test]
    fn scale_is_logarithmic_where_ratios_exceed_the_span() {
        assert!(!axis(&[5.0, 100.0]).logarithmic && axis(&[4.9, 100.0]).logarithmic);
        assert_eq!(axis(&[5.0, 100.0]).ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(axis(&[2.0, 400.0]).ticks, [1.0, 10.0, 100.0]);
        assert_eq!(axis(&[1.0, 400.0]).from, 0.1);
        assert!(axis(&[0.0]).share(0.0) == 0.0);
    }

    #[test]
    fn shares_lie_on_the_axis() {
        let log = axis(&[1.5, 1000.0]);
        assert!((log.share(1000.0) - 1.0).abs() < 1e-9 && log.share(0.0) == 0.0);
        assert!(log.share(1.5) > 0.0);
        assert_eq!(axis(&[50.0, 100.0]).share(50.0), 0.5);
    }

    #[test]
    fn labels_and_titles_follow_the_scale() {
        assert_eq!(axis(&[1.5, 2e6]).label(1e4, "ns"), "10 us");
        assert_eq!(axis(&[300.0, 1500.0]).label(500.0, "ns"), "0.5");
        assert_eq!(axis(&[300.0, 1500.0]).title("time", &record(1.0)), "time in us");
        assert_eq!(axis(&[1.5, 2e6]).title("time", &record(1.0)), "time, logarithmic scale");
        let rate = Label::new("c", "s", "lines/s", "1/s").of(&[1.0]);
        assert_eq!(axis(&[300.0]).title("lines/s", &rate), "lines/s");
    }
}
