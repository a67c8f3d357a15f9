//! The inputs of the workloads: a source of random numbers, and labels of trainers and their
//! pokemon. They are the same in each run, because runs must be comparable.

/// A xorshift generator.
pub(super) struct Random(u64);

impl Random {
    /// A generator that always returns the same sequence.
    pub(super) fn new() -> Random {
        Random(88_172_645_463_325_252)
    }

    /// A number below a bound.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// A number in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns one of the strings.
    pub(super) fn of(&mut self, texts: &[&'static str]) -> &'static str {
        texts[self.below(texts.len())]
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The low bits of a xorshift are weak.
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// A label such as `name=bulbasaur,trainer=ash,type=grass`.
pub(super) fn label(random: &mut Random) -> String {
    let (name, trainer, kind) = (random.of(NAMES), random.of(TRAINERS), random.of(TYPES));
    format!("name={name},trainer={trainer},type={kind}")
}

/// Names of pokemon.
pub(super) const NAMES: &[&str] = &[
    "bulbasaur",
    "charmander",
    "squirtle",
    "caterpie",
    "weedle",
    "pidgey",
    "rattata",
    "spearow",
    "ekans",
    "pikachu",
    "sandshrew",
    "clefairy",
    "vulpix",
    "jigglypuff",
    "zubat",
    "oddish",
    "paras",
    "venonat",
    "diglett",
    "meowth",
    "psyduck",
    "mankey",
    "growlithe",
    "poliwag",
    "abra",
    "machop",
    "bellsprout",
    "tentacool",
    "geodude",
    "ponyta",
    "slowpoke",
    "magnemite",
];

const TRAINERS: &[&str] = &["ash", "misty", "brock", "gary", "jessie", "james", "erika", "sabrina"];

/// Types of pokemon.
pub(super) const TYPES: &[&str] =
    &["grass", "fire", "water", "bug", "normal", "electric", "ground", "psychic"];
