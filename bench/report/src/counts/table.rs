//! The tables of the arena's counts.

use std::fmt::Write;

use super::figures::{Figures, Library, NO_FREE, NO_SHRINK, OURS, PEERS, Peers, lowest};

/// A table of some cases.
pub struct Table {
    /// The table's name in placeholders.
    name: &'static str,
    /// The cases, one for each row.
    pub cases: &'static [&'static str],
}

/// The rows of the first table that bump-scope published.
const FIRST: [&str; 17] = [
    "alloc_u8",
    "alloc_u32",
    "alloc_u32_aligned",
    "try_alloc_u32",
    "try_alloc_u32_aligned",
    "allocate",
    "black_box_allocate",
    "grow_same_align",
    "grow_smaller_align",
    "grow_larger_align",
    "shrink_same_align",
    "shrink_smaller_align",
    "shrink_larger_align",
    "deallocate",
    "deallocate_non_last",
    "warm_up",
    "reset",
];

/// All cases, by table.
pub const TABLES: [Table; 5] = [
    Table {
        name: "alloc",
        cases: &[
            "alloc_u8",
            "alloc_u8_overaligned",
            "alloc_u32",
            "alloc_u32_aligned",
            "alloc_u32_overaligned",
            "alloc_big_struct",
            "alloc_big_struct_aligned",
            "alloc_big_struct_overaligned",
            "alloc_u8_slice",
            "alloc_u8_slice_overaligned",
            "alloc_u32_slice",
            "alloc_u32_slice_aligned",
            "alloc_u32_slice_overaligned",
        ],
    },
    Table {
        name: "try_alloc",
        cases: &[
            "try_alloc_u8",
            "try_alloc_u8_overaligned",
            "try_alloc_u32",
            "try_alloc_u32_aligned",
            "try_alloc_u32_overaligned",
            "try_alloc_big_struct",
            "try_alloc_big_struct_aligned",
            "try_alloc_big_struct_overaligned",
            "try_alloc_u8_slice",
            "try_alloc_u8_slice_overaligned",
            "try_alloc_u32_slice",
            "try_alloc_u32_slice_aligned",
            "try_alloc_u32_slice_overaligned",
        ],
    },
    Table {
        name: "allocator",
        cases: &[
            "allocate",
            "grow_same_align",
            "grow_smaller_align",
            "grow_larger_align",
            "shrink_same_align",
            "shrink_smaller_align",
            "shrink_larger_align",
            "deallocate",
            "deallocate_non_last",
        ],
    },
    Table {
        name: "black_box",
        cases: &[
            "black_box_allocate",
            "black_box_grow_same_align",
            "black_box_grow_smaller_align",
            "black_box_grow_larger_align",
            "black_box_shrink_same_align",
            "black_box_shrink_smaller_align",
            "black_box_shrink_larger_align",
            "black_box_deallocate",
            "black_box_deallocate_non_last",
        ],
    },
    Table { name: "others", cases: &["warm_up", "reset"] },
];

/// The columns of the tables with default settings.
const DEFAULTS: [Library; 8] =
    [OURS[0], OURS[1], OURS[2], OURS[3], PEERS[0], PEERS[1], PEERS[2], PEERS[3]];

/// The columns of the table of settings.
const SETTINGS: [Library; 8] =
    [OURS[0], OURS[1], OURS[4], OURS[5], NO_SHRINK[0], NO_SHRINK[1], NO_FREE[0], NO_FREE[1]];

/// Renders a table, or another part of the pages, by its name; returns `None` for an unknown name.
pub fn render(figures: &Figures, name: &str) -> Option<String> {
    let table = |table: &Table| rows(figures, table.cases, &DEFAULTS);
    Some(match name {
        "setting" => setting(figures),
        "standing" => standing(figures),
        "first" => rows(figures, &FIRST, &DEFAULTS),
        "settings" => settings(figures),
        "all" => rows(figures, &all_cases(), &DEFAULTS),
        other => table(TABLES.iter().find(|table| table.name == other)?),
    })
}

fn all_cases() -> Vec<&'static str> {
    TABLES.iter().flat_map(|table| table.cases).copied().collect()
}

/// Renders the cases whose count differs from the same library with default settings.
fn settings(figures: &Figures) -> String {
    let pairs = [
        (OURS[4], OURS[0]),
        (OURS[5], OURS[1]),
        (NO_SHRINK[0], PEERS[0]),
        (NO_SHRINK[1], PEERS[1]),
        (NO_FREE[0], PEERS[0]),
        (NO_FREE[1], PEERS[1]),
    ];
    let mut cases = all_cases();
    cases.retain(|case| {
        let count = |(symbol, _): Library| figures.count(case, symbol);
        pairs.iter().any(|&(library, default)| count(library) != count(default))
    });
    rows(figures, &cases, &SETTINGS)
}

/// A Markdown table of `instructions / branches`, with the lowest cells of each row in bold.
fn rows(figures: &Figures, cases: &[&str], columns: &[Library]) -> String {
    let mut text = String::from("| case |");
    for (_, name) in columns {
        let _ = write!(text, " {name} |");
    }
    text += "\n| --- |";
    text += &" ---: |".repeat(columns.len());
    for case in cases {
        let least = lowest(figures, case, columns.iter().map(|(symbol, _)| *symbol));
        let _ = write!(text, "\n| `{case}` |");
        for (symbol, _) in columns {
            let cell = match figures.count(case, symbol) {
                Some(count) => {
                    let cell = format!("{} / {}", count.instructions, count.branches);
                    if Some(count) == least { format!("**{cell}**") } else { cell }
                }
                None => "-".to_owned(),
            };
            let _ = write!(text, " {cell} |");
        }
    }
    text
}

fn setting(figures: &Figures) -> String {
    let setting = &figures.setting;
    let libraries = setting.libraries.iter().map(|(name, version)| format!("{name} {version}"));
    let libraries: Vec<String> = libraries.collect();
    format!(
        "rustc {} (LLVM {}), {}, {}, {}; {}.",
        setting.rustc,
        setting.llvm,
        setting.target,
        setting.libc,
        setting.valgrind,
        libraries.join(", ")
    )
}

/// The numbers of cells below, at, and above the lowest peer.
fn places(figures: &Figures, library: &str, peers: Peers) -> [usize; 3] {
    let mut places = [0; 3];
    for case in TABLES.iter().flat_map(|table| table.cases) {
        if let (Some(count), Some(limit)) =
            (figures.count(case, library), lowest(figures, case, peers.symbols()))
        {
            let place = if count.exceeds(limit) { 2 } else { usize::from(count == limit) };
            places[place] += 1;
        }
    }
    places
}

/// The standing of quipu's arenas, as a Markdown table of `below / equal / above`.
fn standing(figures: &Figures) -> String {
    let mut text = String::from(
        "| rows below / equal to / above the lowest peer | default settings | also no shrinks \
         | also no frees |\n| --- | ---: | ---: | ---: |",
    );
    for (library, name) in OURS {
        let _ = write!(text, "\n| {name} |");
        for peers in Peers::ALL {
            let [below, at, above] = places(figures, library, peers);
            let _ = write!(text, " {below} / {at} / {above} |");
        }
    }
    text
}
