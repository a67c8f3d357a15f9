//! The tables, and the files with the markers between which they are written.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::check::{lowest, summary};
use crate::error::{Error, Result};
use crate::figures::{Figures, Library, NO_FREE, NO_SHRINK, OURS, PEERS};

/// A table of some cases.
pub(crate) struct Table {
    /// Its name, in the marker.
    name: &'static str,
    pub(crate) cases: &'static [&'static str],
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
pub(crate) const TABLES: [Table; 5] = [
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

/// Writes every table into every file that has a marker for it.
pub(crate) fn write_all(root: &Path, figures: &Figures) -> Result<()> {
    for file in ["docs/benchmarks/arena.md", "crates/arena/README.md"] {
        let path = root.join(file);
        let mut text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        let before = text.clone();
        let mut parts = vec![
            ("first", rows(figures, &FIRST, &DEFAULTS)),
            ("settings", settings(figures)),
            ("standing", summary(figures)),
            ("setting", setting(figures)),
        ];
        parts
            .extend(TABLES.iter().map(|table| (table.name, rows(figures, table.cases, &DEFAULTS))));
        for (name, content) in parts {
            text = replace(&text, name, &content);
        }
        if !before.contains("<!-- table ") {
            return Err(Error::Content(path, "has no marker <!-- table NAME -->".into()));
        }
        fs::write(&path, text).map_err(Error::file("write", &path))?;
    }
    Ok(())
}

/// All rows with default settings in one table, and the table of the settings.
pub(crate) fn all_rows(figures: &Figures) -> String {
    rows(figures, &all_cases(), &DEFAULTS) + "\n\n" + &settings(figures)
}

fn all_cases() -> Vec<&'static str> {
    TABLES.iter().flat_map(|table| table.cases).copied().collect()
}

/// The cases in which a count differs from that of the same library with default settings.
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

/// Replaces the text between `<!-- table NAME -->` and `<!-- end -->`, wherever that occurs.
fn replace(text: &str, name: &str, content: &str) -> String {
    let marker = format!("<!-- table {name} -->");
    let mut parts = text.split(marker.as_str());
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.find("<!-- end -->").map_or(part, |at| &part[at..]);
        let _ = write!(replaced, "{marker}\n\n{content}\n\n{rest}");
    }
    replaced
}
