//! The inputs of all contenders: the same labels, in the same order, from the same seeds.
//!
//! The metric is the one in `measured`'s benchmark: errors of HTTP requests by kind, route and
//! user. Kinds and routes are known when a program starts; users are not. Keys are prepared before
//! a clock runs. They are in memory in the order of their use, like the parts of a request that was
//! just read.

/// The kind of an error: a label of fixed cardinality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// `user`
    User,
    /// `internal`
    Internal,
    /// `network`
    Network,
}

/// The route of a request as an enum, for programs with such an enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Route {
    /// `/api/v1/users`
    Users,
    /// `/api/v1/users/:id`
    User,
    /// `/api/v1/products`
    Products,
    /// `/api/v1/products/:id`
    Product,
    /// `/api/v1/products/:id/owner`
    Owner,
    /// `/api/v1/products/:id/purchase`
    Purchase,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 3] = [Kind::User, Kind::Internal, Kind::Network];

    /// The label's value.
    pub fn text(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Internal => "internal",
            Kind::Network => "network",
        }
    }
}

impl Route {
    /// All routes.
    pub const ALL: [Route; 6] =
        [Route::Users, Route::User, Route::Products, Route::Product, Route::Owner, Route::Purchase];

    /// The label's value.
    pub fn text(self) -> &'static str {
        match self {
            Route::Users => "/api/v1/users",
            Route::User => "/api/v1/users/:id",
            Route::Products => "/api/v1/products",
            Route::Product => "/api/v1/products/:id",
            Route::Owner => "/api/v1/products/:id/owner",
            Route::Purchase => "/api/v1/products/:id/purchase",
        }
    }
}

/// A label of ten values, in the form that each library derives.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    quipu::LabelValue,
    measured::FixedCardinalityLabel,
    fastmetrics::derive::EncodeLabelValue,
    prometheus_client::encoding::EncodeLabelValue,
)]
#[allow(missing_docs)]
pub enum Digit {
    Zero,
    One,
    Two,
    Three,
    Four,
    Five,
    Six,
    Seven,
    Eight,
    Nine,
}

impl Digit {
    /// All digits.
    pub const ALL: [Digit; 10] = [
        Digit::Zero,
        Digit::One,
        Digit::Two,
        Digit::Three,
        Digit::Four,
        Digit::Five,
        Digit::Six,
        Digit::Seven,
        Digit::Eight,
        Digit::Nine,
    ];

    /// Returns the label's value, for libraries that take strings.
    pub fn text(self) -> &'static str {
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
            [self as usize]
    }

    /// All pairs of digits, each with another number of one to four digits.
    pub fn pairs() -> impl Iterator<Item = (Digit, Digit, u32)> {
        let pair = |number: usize| {
            (Digit::ALL[number / 10], Digit::ALL[number % 10], 37 * number as u32 + 1)
        };
        (0..100).map(pair)
    }
}

/// Returns the names of all routes, to register with a library when a program starts.
pub fn routes() -> impl ExactSizeIterator<Item = &'static str> {
    Route::ALL.into_iter().map(Route::text)
}

/// The upper bounds of a histogram's buckets, in seconds: 1 ms to 128 ms.
pub const BOUNDS: [f64; 8] = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128];

/// A xorshift generator.
pub struct Random(u64);

impl Random {
    /// Starts from a seed whose mixed value is not 0.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// Returns a number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// The length of the input tables of a loop. They are too long for a branch predictor to learn, and
/// are read in order.
pub const TURN: usize = 4096;

/// Returns random kinds and routes.
pub fn enums(seed: u64) -> Vec<(Kind, Route)> {
    let mut random = Random::new(seed);
    let mut pair = || {
        let route = Route::ALL[random.below(Route::ALL.len())];
        (Kind::ALL[random.below(Kind::ALL.len())], route)
    };
    (0..TURN).map(|_| pair()).collect()
}

/// Like [`enums`], with the names of the routes. Their addresses differ from the library's strings,
/// because a request arrives in a copy.
pub fn pairs(seed: u64) -> Vec<(Kind, &'static str)> {
    let copies = Route::ALL.map(|route| &*route.text().to_owned().leak());
    enums(seed).into_iter().map(|(kind, route)| (kind, copies[route as usize])).collect()
}

/// Returns random observations in seconds, spread over all nine buckets.
pub fn observations(seed: u64) -> Vec<f64> {
    let mut random = Random::new(seed);
    (0..TURN).map(|_| 0.0005 * 2f64.powf(9.0 * random.unit())).collect()
}

/// Keys of three labels in a block of memory, in the order of their use.
pub struct Keys {
    texts: String,
    keys: Vec<Key>,
    routes: [&'static str; 6],
}

/// The position of a user's name in `texts`, and the other two labels.
#[derive(Clone, Copy)]
struct Key {
    start: u32,
    length: u8,
    kind: Kind,
    route: Route,
}

impl Keys {
    /// Creates the keys of the series with these numbers, in this order.
    pub fn new(numbers: impl ExactSizeIterator<Item = usize>) -> Keys {
        let routes = Route::ALL.map(|route| &*route.text().to_owned().leak());
        let mut texts = String::with_capacity(numbers.len() * 26);
        let mut keys = Vec::with_capacity(numbers.len());
        for number in numbers {
            let start = texts.len();
            let (kind, route) = write_user(&mut texts, number);
            let length = (texts.len() - start) as u8;
            let start = u32::try_from(start).expect("the texts take less than 4 GiB");
            keys.push(Key { start, length, kind, route });
        }
        Keys { texts, keys, routes }
    }

    /// Creates the keys of the first `count` series, in random order.
    pub fn shuffled(count: usize, seed: u64) -> Keys {
        let mut numbers: Vec<usize> = (0..count).collect();
        let mut random = Random::new(seed);
        for index in (1..count).rev() {
            numbers.swap(index, random.below(index + 1));
        }
        Keys::new(numbers.into_iter())
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns a key's kind, route and user.
    pub fn key(&self, index: usize) -> (Kind, &'static str, &str) {
        let key = self.keys[index];
        let start = key.start as usize;
        let user = &self.texts[start..start + usize::from(key.length)];
        (key.kind, self.routes[key.route as usize], user)
    }

    /// Returns all keys in order.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, &'static str, &str)> {
        (0..self.len()).map(|index| self.key(index))
    }
}

/// Appends the unique name of a series' user, and returns the other labels.
///
/// The name is 14 to 26 bytes long, 20 on average.
fn write_user(texts: &mut String, number: usize) -> (Kind, Route) {
    const GIVEN: [&str; 16] = [
        "Ada", "Bert", "Carla", "Dmitri", "Eleanor", "Franz", "Gisela", "Hugo", "Ingrid", "Jonas",
        "Katarina", "Leopold", "Maria", "Nikolai", "Ophelia", "Rosalind",
    ];
    const FAMILY: [&str; 16] = [
        "Xu",
        "Ng",
        "Smith",
        "Kowalski",
        "Yamamoto",
        "Nguyen",
        "Hernandez",
        "Abernathy",
        "Schmidt",
        "Takahashi",
        "Rodriguez",
        "Zimmerman",
        "Fitzgerald",
        "Goldberg",
        "Jankowski",
        "Quincy",
    ];
    let mut random = Random::new(number as u64 + 1);
    texts.push_str(GIVEN[random.below(GIVEN.len())]);
    texts.push(' ');
    texts.push_str(FAMILY[random.below(FAMILY.len())]);
    texts.push(' ');
    let mut rest = number;
    for _ in 0..5 {
        texts.push(char::from(b"0123456789abcdefghijklmnopqrstuvwxyz"[rest % 36]));
        rest /= 36;
    }
    (Kind::ALL[random.below(Kind::ALL.len())], Route::ALL[random.below(Route::ALL.len())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn users_are_distinct_and_20_bytes_long_in_the_mean() {
        let keys = Keys::new(0..100_000);
        let users: HashSet<&str> = keys.iter().map(|key| key.2).collect();
        assert_eq!(users.len(), 100_000);
        let mean = keys.texts.len() as f64 / 100_000.0;
        assert!((19.5..20.5).contains(&mean), "{mean}");
        let groups: HashSet<_> = keys.iter().map(|key| (key.0, key.1)).collect();
        assert_eq!(groups.len(), 18);
    }

    #[test]
    fn shuffled_keys_are_those_of_the_first_series() {
        let (plain, shuffled) = (Keys::new(0..1000), Keys::shuffled(1000, 1));
        assert!(plain.iter().zip(shuffled.iter()).any(|(a, b)| a != b));
        let plain: HashSet<_> = plain.iter().collect();
        assert_eq!(plain, shuffled.iter().collect::<HashSet<_>>());
    }

    #[test]
    fn every_bucket_gets_its_share() {
        let mut counts = [0; 9];
        for value in observations(1) {
            counts[BOUNDS.partition_point(|bound| *bound < value)] += 1;
        }
        assert!(counts.iter().all(|count| (380..540).contains(count)), "{counts:?}");
    }

    #[test]
    fn pairs_bring_texts_of_their_own() {
        for ((kind, route), (same, text)) in enums(1).into_iter().zip(pairs(1)) {
            assert_eq!((kind, route.text()), (same, text));
            assert_ne!(route.text().as_ptr(), text.as_ptr());
        }
    }
}
