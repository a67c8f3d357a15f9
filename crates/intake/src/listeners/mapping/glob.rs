//! A lookup tree for glob patterns such as `web.*.hits`, with one level for each part of a name.
//! Looking up a name costs the same with 10 rules as with 10,000.

use std::collections::HashMap;

use super::file::MetricClass;

/// The glob patterns of all rules.
#[derive(Debug)]
pub(super) struct Globs {
    nodes: Vec<Node>,
    /// Whether the order of the rules determines the winner. Otherwise, the most specific pattern
    /// wins, compared from left to right.
    is_ordered: bool,
}

#[derive(Debug)]
struct Node {
    exact: HashMap<Box<str>, usize>,
    any: Option<usize>,
    /// The first rule whose pattern ends at this node, for each class of metrics.
    rules: [Option<usize>; 3],
    /// The index of the first rule at this node or below, to skip a subtree that cannot win.
    first: usize,
}

/// The index of the matching rule, and the parts of the name that its asterisks matched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GlobMatch<'a> {
    pub(super) rule: usize,
    pub(super) captures: Vec<&'a str>,
}

impl Globs {
    pub(super) fn new(is_ordered: bool) -> Self {
        Self { nodes: vec![Node::new()], is_ordered }
    }

    /// Adds the pattern of a rule. Call this in the order of the rules.
    pub(super) fn add(&mut self, pattern: &str, class: Option<MetricClass>, rule: usize) {
        let mut at = 0;
        self.nodes[at].first = self.nodes[at].first.min(rule);
        for part in pattern.split('.') {
            let known = match part {
                "*" => self.nodes[at].any,
                part => self.nodes[at].exact.get(part).copied(),
            };
            at = known.unwrap_or_else(|| {
                let new = self.nodes.len();
                self.nodes.push(Node::new());
                match part {
                    "*" => self.nodes[at].any = Some(new),
                    part => drop(self.nodes[at].exact.insert(part.into(), new)),
                }
                new
            });
            self.nodes[at].first = self.nodes[at].first.min(rule);
        }
        let classes = match class {
            Some(class) => &[class][..],
            None => &[MetricClass::Counter, MetricClass::Gauge, MetricClass::Observer],
        };
        for class in classes {
            self.nodes[at].rules[*class as usize].get_or_insert(rule);
        }
    }

    /// Returns the rule that wins for a name.
    pub(super) fn find<'a>(&self, name: &'a str, class: MetricClass) -> Option<GlobMatch<'a>> {
        let mut search = Search { globs: self, class, captures: Vec::new(), best: None };
        search.visit(0, Some(name));
        search.best
    }
}

/// A search in the tree. This visits each node at most once, because there is only one path to each
/// node.
struct Search<'g, 'a> {
    globs: &'g Globs,
    class: MetricClass,
    captures: Vec<&'a str>,
    best: Option<GlobMatch<'a>>,
}

impl<'a> Search<'_, 'a> {
    fn visit(&mut self, at: usize, rest: Option<&'a str>) {
        let node = &self.globs.nodes[at];
        let can_win = match &self.best {
            Some(best) => self.globs.is_ordered && node.first < best.rule,
            None => true,
        };
        if !can_win {
            return;
        }
        let Some(rest) = rest else {
            if let Some(rule) = node.rules[self.class as usize]
                && self.best.as_ref().is_none_or(|best| rule < best.rule)
            {
                self.best = Some(GlobMatch { rule, captures: self.captures.clone() });
            }
            return;
        };
        let (part, rest) = match rest.split_once('.') {
            Some((part, rest)) => (part, Some(rest)),
            None => (rest, None),
        };
        if let Some(next) = node.exact.get(part) {
            self.visit(*next, rest);
        }
        if let Some(next) = node.any {
            self.captures.push(part);
            self.visit(next, rest);
            self.captures.pop();
        }
    }
}

impl Node {
    fn new() -> Self {
        Self { exact: HashMap::new(), any: None, rules: [None; 3], first: usize::MAX }
    }
}

/// Returns whether a pattern is valid: each part is an asterisk, or consists of letters, digits,
/// underscores and dashes, and the first part does not begin with a digit.
pub(super) fn is_pattern(pattern: &str) -> bool {
    let is_part = |part: &str| {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        part == "*"
            || part.as_bytes().split_first().is_some_and(|(first, others)| {
                is_word(*first) && others.iter().all(|byte| is_word(*byte) || *byte == b'-')
            })
    };
    pattern.len() <= MAX_PATTERN
        && !pattern.starts_with(|c: char| c.is_ascii_digit())
        && pattern.split('.').all(is_part)
}

/// The maximum length of a pattern in bytes, which limits the recursion of a search.
const MAX_PATTERN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn globs(is_ordered: bool, patterns: &[&str]) -> Globs {
        let mut globs = Globs::new(is_ordered);
        for (rule, pattern) in patterns.iter().enumerate() {
            globs.add(pattern, None, rule);
        }
        globs
    }

    /// Compares the pattern part by part.
    fn fits<'a>(pattern: &str, name: &'a str) -> Option<Vec<&'a str>> {
        let (parts, names): (Vec<_>, Vec<_>) =
            (pattern.split('.').collect(), name.split('.').collect());
        let fits = |(part, name): (&&str, &&str)| *part == "*" || part == name;
        (parts.len() == names.len() && parts.iter().zip(&names).all(fits)).then(|| {
            let pairs = parts.iter().zip(names);
            pairs.filter(|(part, _)| **part == "*").map(|(_, name)| name).collect()
        })
    }

    #[test]
    fn the_first_rule_wins_or_the_most_specific_one() {
        let patterns =
            ["a.*.*", "*.b.c", "a.b.c", "a.*.c", "a", "*", "*.*", "a.b.c.d", "*.*.*.*", "b.*.c"];
        let parts = ["a", "b", "c", "d", ""];
        let mut names: Vec<String> = parts.map(str::to_owned).to_vec();
        for _ in 0..3 {
            let longer = names.iter().flat_map(|name| parts.map(|part| format!("{name}.{part}")));
            let longer: Vec<_> = longer.collect();
            names.extend(longer);
            names.sort();
            names.dedup();
        }
        let (ordered, unordered) = (globs(true, &patterns), globs(false, &patterns));
        for name in &names {
            let fitting = patterns.iter().enumerate().filter_map(|(rule, pattern)| {
                fits(pattern, name).map(|captures| GlobMatch { rule, captures })
            });
            let mut fitting: Vec<_> = fitting.collect();
            assert_eq!(ordered.find(name, MetricClass::Gauge).as_ref(), fitting.first(), "{name}");
            // An asterisk sorts before any other part.
            fitting.sort_by_key(|glob_match| {
                patterns[glob_match.rule].split('.').map(|part| part == "*").collect::<Vec<_>>()
            });
            assert_eq!(
                unordered.find(name, MetricClass::Gauge).as_ref(),
                fitting.first(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_rule_may_be_for_one_class() {
        let mut globs = Globs::new(true);
        globs.add("a.*", Some(MetricClass::Counter), 0);
        globs.add("a.*", Some(MetricClass::Observer), 1);
        globs.add("*.b", None, 2);
        let rule = |class| globs.find("a.b", class).unwrap().rule;
        assert_eq!(
            [rule(MetricClass::Counter), rule(MetricClass::Observer), rule(MetricClass::Gauge)],
            [0, 1, 2]
        );
    }

    #[test]
    fn patterns_have_the_syntax_of_statsd_exporter() {
        for good in ["a", "*", "a.*.b", "*.1.a-b", "_a-1.0"] {
            assert!(is_pattern(good), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "1.a", "a*", "a.b*", "-a", "a.-b", "a b", "\u{e9}", "a:b"]
        {
            assert!(!is_pattern(bad), "{bad}");
        }
    }
}
