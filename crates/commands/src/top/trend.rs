//! A ring buffer with the last values of a series, and sparklines.

/// The number of values in a trend.
pub(super) const LENGTH: usize = 60;

/// The last values, oldest first, in a ring.
#[derive(Debug, Clone)]
pub(super) struct Trend {
    values: Box<[f32; LENGTH]>,
    next: u8,
    length: u8,
}

impl Trend {
    /// Creates a trend with `count` copies of this value.
    pub(super) fn repeat(value: f64, count: usize) -> Self {
        let length = count.min(LENGTH);
        let values = Box::new([value as f32; LENGTH]);
        // This fits, because LENGTH fits into a byte.
        Self { values, next: (length % LENGTH) as u8, length: length as u8 }
    }

    pub(super) fn push(&mut self, value: f64) {
        self.values[usize::from(self.next)] = value as f32;
        self.next = (self.next + 1) % LENGTH as u8;
        self.length = (self.length + 1).min(LENGTH as u8);
    }

    /// Returns the values, oldest first.
    pub(super) fn values(&self) -> impl ExactSizeIterator<Item = f32> {
        let (next, length) = (usize::from(self.next), usize::from(self.length));
        (0..length).map(move |i| self.values[(next + LENGTH - length + i) % LENGTH])
    }
}

/// The characters of a sparkline, from lowest to highest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Levels([char; 8]);

impl Levels {
    /// Block characters, from one eighth to a full block.
    pub(crate) const BLOCKS: Self = Self([
        '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
        '\u{2588}',
    ]);
    /// ASCII characters, for terminals that show no others.
    pub(super) const ASCII: Self = Self(['_', '.', ':', '-', '=', '+', '*', '#']);

    /// Formats the last values as a string of at most `width` characters. The minimum becomes the
    /// lowest character, and the maximum the highest one. If all values are equal, they become the
    /// lowest one.
    pub(crate) fn draw(self, values: impl ExactSizeIterator<Item = f32>, width: usize) -> String {
        let skipped = values.len().saturating_sub(width);
        let values: Vec<f32> = values.skip(skipped).collect();
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let (low, high) = (finite().fold(f32::MAX, f32::min), finite().fold(f32::MIN, f32::max));
        let level = |value: f32| {
            let share = (value - low) / (high - low);
            // A NaN is converted to 0.
            self.0[((share * 7.0).round() as usize).min(7)]
        };
        values.iter().map(|&value| if value.is_finite() { level(value) } else { ' ' }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_holds_the_last_values() {
        let mut trend = Trend::repeat(1.0, 2);
        trend.push(5.0);
        assert!(trend.values().eq([1.0, 1.0, 5.0]));
        (0..200).for_each(|i| trend.push(f64::from(i)));
        assert!(trend.values().eq((140..200_u8).map(f32::from)));
        assert_eq!(Trend::repeat(0.0, 1000).values().len(), LENGTH);
    }

    #[test]
    fn sparklines_span_their_values() {
        let draw = |values: &[f32], width| Levels::ASCII.draw(values.iter().copied(), width);
        assert_eq!(draw(&[0.0, 1.0, 0.5, 1.0], 9), "_#=#");
        assert_eq!(draw(&[0.0, 7.0, 14.0, 14.0], 2), "__");
        assert_eq!(draw(&[3.0, 3.0], 9), "__");
        assert_eq!(draw(&[f32::NAN, 1.0, f32::INFINITY, 2.0], 9), " _ #");
        assert_eq!(draw(&[f32::NAN], 9), " ");
        assert_eq!(draw(&[], 9), "");
    }
}
