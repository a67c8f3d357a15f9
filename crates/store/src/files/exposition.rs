//! An exposition of files in memory, for fuzz targets and tests.

use std::collections::HashMap;

use quipu::exposition::{Encoder, Escaping, Format};
use quipu_arena::Arena;

use super::emit::emit;
use super::families::{Families, fold};
use super::name::{Content, Name};
use super::table::{Place, RowTable};
use super::walk::{Layout, Window, walk};

/// Returns the exposition of files with these names and bytes, and the number of files that could
/// be used in full. A file is omitted if no client uses such a name.
#[doc(hidden)]
pub fn exposition<'n>(
    files: impl IntoIterator<Item = (&'n str, &'n [u8])>,
    format: Format,
) -> (Vec<u8>, usize) {
    let mut arena: Arena = Arena::new();
    let scope = arena.as_scope();
    let (mut families, hints) = (Families::default(), HashMap::new());
    let (mut window, mut sound) = (Window::default(), 0);
    let mut tables: Vec<(Name<'_>, RowTable<'_>)> = Vec::new();
    for (name, bytes) in files {
        let Some(name) = Name::parse(name) else { continue };
        let layout = match name.content {
            Content::Ruby(_) => Layout::Ruby,
            _ => Layout::Python,
        };
        let mut table = RowTable::new(fold(name.content, &hints));
        let mut place = Place::new(0);
        let result = walk(bytes, layout, &mut window, |entry| {
            table.add(&mut place, entry.key, entry.reading, &scope);
        });
        sound += usize::from(result.is_ok());
        match tables.iter_mut().find(|(other, _)| *other == name) {
            Some((_, known)) => known.merge(&table, &scope),
            None => tables.push((name, table)),
        }
    }
    for (name, table) in &tables {
        families.add_table(name.content, table, &hints, |_| name.pid, |_| {});
    }
    families.remove_duplicates([], |_| {});
    let mut encoder = Encoder::new(format, Escaping::default());
    emit(&mut families, &mut encoder);
    encoder.finish();
    (encoder.buffer().to_vec(), sound)
}
