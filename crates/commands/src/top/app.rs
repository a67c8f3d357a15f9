//! The state of `quipu top` on the screen: which list or series the user sees, the selected item,
//! and the open prompt. Keys and looks change this state, and `view` draws it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use quipu_segment::printable;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::list::{FamilyKey, Item, ListView, Sort, Subject, label_names, list};
use super::model::{Model, Row};
use super::replay::{Playback, Step};
use super::trend::Levels;
use crate::filter::Filter;
use crate::look::Look;

/// The state of the program.
#[derive(Debug)]
pub(super) struct App {
    /// The name of the target.
    pub(super) target: String,
    pub(super) model: Model,
    /// The lists that the user opened, the current one last; never empty.
    views: Vec<OpenView>,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    /// The filter as typed and as parsed.
    pub(super) filter: (String, Filter),
    /// The words of the last search.
    search: String,
    pub(super) items: Vec<Item>,
    /// The index of the first item or line on the screen.
    pub(super) offset: usize,
    /// The number of items or lines that fit on the screen.
    room: usize,
    /// The open prompt, if any.
    pub(super) prompt: Option<Prompt>,
    /// The unreadable files and lines of the last look.
    pub(super) problems: Vec<String>,
    /// Notes about series that are not shown, although everything was readable.
    pub(super) notes: Vec<String>,
    pub(super) interval: Duration,
    pub(super) is_paused: bool,
    pub(super) is_help: bool,
    pub(super) levels: Levels,
    /// Whether the families of quipu itself are listed.
    pub(super) shows_own: bool,
    pub(super) is_colored: bool,
    /// The moment of the recording, in a replay.
    pub(super) replay: Option<Playback>,
    /// The number of the signal that ends the program; 0 if there was none.
    pub(super) signal: Arc<AtomicUsize>,
}

/// An opened list or series, and its selected item.
#[derive(Debug)]
struct OpenView {
    view: ListView,
    selected: usize,
    /// The key of the item that the user selected, which finds this item again after the list has
    /// changed. Without a key, the first item is selected.
    key: Option<ItemKey>,
}

/// The identity of an item. It stays the same when the indices of items change.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ItemKey {
    Family(FamilyKey),
    Group(String),
    Row(FamilyKey, String),
}

/// A line that the user types.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) purpose: Purpose,
    pub(super) text: String,
    /// The filter before the prompt was opened.
    before: String,
}

/// The purpose of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Filter,
    Search,
}

/// The action that the caller must perform after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    /// The user changed the interval, or paused.
    Pace,
    /// Go to another moment of the recording.
    Step(Step),
}

/// The limits of the interval, for the flag and for the keys.
pub(super) const INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(3600)];
/// The maximum length of a prompt in bytes.
const MAX_PROMPT: usize = 200;

impl App {
    pub(super) fn new(target: String, interval: Duration) -> Self {
        Self {
            target,
            model: Model::default(),
            views: vec![OpenView { view: ListView::Families, selected: 0, key: None }],
            sort: Sort::Name,
            is_reversed: false,
            filter: Default::default(),
            search: String::new(),
            items: Vec::new(),
            offset: 0,
            room: 1,
            prompt: None,
            problems: Vec::new(),
            notes: Vec::new(),
            interval,
            is_paused: false,
            is_help: false,
            levels: Levels::BLOCKS,
            shows_own: false,
            is_colored: false,
            replay: None,
            signal: Arc::default(),
        }
    }

    /// Shows the result of a look at this time. After an error, the rows stay unchanged.
    pub(super) fn look(&mut self, look: &Result<Look, String>, at: Duration) {
        match look {
            Ok(look) => {
                self.model.update(look, at);
                self.problems = look.problems();
                let count = self.model.duplicates();
                let note = "series have the name and labels of another: the first is shown";
                self.notes = (count > 0).then(|| format!("{count} {note}")).into_iter().collect();
                self.list();
            }
            Err(error) => self.problems = vec![error.clone()],
        }
    }

    /// Opens a list, and forgets the earlier ones.
    pub(super) fn start_at(&mut self, view: ListView) {
        self.views.clear();
        self.go(view);
    }

    pub(super) fn set_filter(&mut self, text: &str) {
        self.filter = (text.to_owned(), Filter::parse(text));
        self.list();
    }

    fn open_view(&mut self) -> &mut OpenView {
        self.views.last_mut().expect("the first view is never left")
    }

    pub(super) fn view(&self) -> &ListView {
        &self.views.last().expect("the first view is never left").view
    }

    pub(super) fn selected(&self) -> usize {
        self.views.last().map_or(0, |open| open.selected)
    }

    /// Returns the series whose page is open, if it still exists.
    pub(super) fn row(&self) -> Option<&Row> {
        let ListView::Series { family, labels } = self.view() else { return None };
        let row = self.model.find(self.model.number(family)?, labels)?;
        self.model.rows().get(row as usize)
    }

    /// Rebuilds the list, and keeps the selection.
    pub(super) fn list(&mut self) {
        let (sort, is_reversed) = (self.sort, self.is_reversed);
        self.items = list(&self.model, self.view(), &self.filter.1, sort, is_reversed);
        if self.hides_own() {
            self.items.retain(|item| !is_own(&self.model, item));
        }
        let selected = match &self.open_view().key.clone() {
            None => 0,
            Some(key) => {
                let found = self.items.iter().position(|item| self.has_key(item, key));
                found.unwrap_or(self.selected().min(self.items.len().saturating_sub(1)))
            }
        };
        self.open_view().selected = selected;
        self.fit(self.room);
    }

    /// Returns whether the list hides quipu's own families. A filter finds them anyway.
    fn hides_own(&self) -> bool {
        let is_of_all = matches!(self.view(), ListView::Families | ListView::All);
        is_of_all && !self.shows_own && self.filter.0.is_empty()
    }

    /// Returns the number of families that the list hides.
    pub(super) fn hidden_families(&self) -> usize {
        if self.hides_own() { self.model.used_with_prefix(OWN) } else { 0 }
    }

    /// Returns whether an item has this key.
    fn has_key(&self, item: &Item, key: &ItemKey) -> bool {
        let is_family = |number: u32, (name, kind): &FamilyKey| {
            let family = &self.model.families()[number as usize];
            family.name == *name && family.kind == *kind
        };
        match (&item.subject, key) {
            (Subject::Family(number), ItemKey::Family(family)) => is_family(*number, family),
            (Subject::Group(value), ItemKey::Group(other)) => value == other,
            (Subject::Row(row), ItemKey::Row(family, labels)) => {
                let row = &self.model.rows()[*row as usize];
                *row.labels == **labels && is_family(row.family, family)
            }
            _ => false,
        }
    }

    fn family_key(&self, number: u32) -> FamilyKey {
        let family = &self.model.families()[number as usize];
        (family.name.clone(), family.kind)
    }

    fn item_key(&self, item: &Item) -> ItemKey {
        match &item.subject {
            Subject::Family(number) => ItemKey::Family(self.family_key(*number)),
            Subject::Group(value) => ItemKey::Group(value.clone()),
            Subject::Row(row) => {
                let row = &self.model.rows()[*row as usize];
                ItemKey::Row(self.family_key(row.family), row.labels.to_string())
            }
        }
    }

    fn select(&mut self, selected: usize) {
        let key = self.items.get(selected).map(|item| self.item_key(item));
        let open = self.open_view();
        open.selected = selected;
        // We keep the key, because an empty list can fill again.
        open.key = key.or(open.key.take());
        self.fit(self.room);
    }

    /// Scrolls so that the selected item is on the screen.
    pub(super) fn fit(&mut self, room: usize) {
        self.room = room.max(1);
        if matches!(self.view(), ListView::Series { .. }) {
            return;
        }
        let selected = self.selected();
        let lowest = (selected + 1).saturating_sub(self.room);
        self.offset = self.offset.clamp(lowest, selected.max(lowest));
        let last = self.items.len().saturating_sub(self.room);
        self.offset = self.offset.min(last);
    }

    /// Moves the selection, or scrolls a page.
    fn step(&mut self, lines: isize) {
        if matches!(self.view(), ListView::Series { .. }) {
            self.offset = self.offset.saturating_add_signed(lines).min(MAX_SCROLL);
            return;
        }
        let last = self.items.len().saturating_sub(1);
        self.select(self.selected().saturating_add_signed(lines).min(last));
    }

    fn go(&mut self, view: ListView) {
        self.views.push(OpenView { view, selected: 0, key: None });
        self.offset = 0;
        self.list();
    }

    fn back(&mut self) {
        if self.views.len() > 1 {
            self.views.pop();
            self.list();
        } else if !self.filter.0.is_empty() {
            self.set_filter("");
        }
    }

    /// Opens the selected item.
    fn open(&mut self) {
        let Some(item) = self.items.get(self.selected()) else { return };
        let view = match (&item.subject, self.view()) {
            (Subject::Family(number), _) if item.count > 1 => {
                ListView::Family { family: self.family_key(*number), chosen: Vec::new(), by: None }
            }
            (Subject::Group(value), ListView::Family { family, chosen, by: Some(by) }) => {
                let mut chosen = chosen.clone();
                chosen.push((by.clone(), value.clone()));
                ListView::Family { family: family.clone(), chosen, by: None }
            }
            _ => {
                let row = &self.model.rows()[item.row as usize];
                let labels = row.labels.to_string();
                ListView::Series { family: self.family_key(row.family), labels }
            }
        };
        self.go(view);
    }

    /// Groups the series of a family by the next label. After the last label, removes the groups.
    fn group(&mut self) {
        let ListView::Family { family, chosen, by } = self.view() else { return };
        let names = label_names(&self.model, family, chosen);
        let at = by.as_ref().and_then(|by| names.iter().position(|name| name == by));
        let next = names.into_iter().nth(at.map_or(0, |at| at + 1));
        let open = self.open_view();
        if let ListView::Family { by, .. } = &mut open.view {
            *by = next;
        }
        open.key = None;
        self.list();
    }

    fn flatten(&mut self) {
        self.start_at(match self.views.first().map(|open| &open.view) {
            Some(ListView::All) => ListView::Families,
            _ => ListView::All,
        });
    }

    /// Selects the next or the previous item whose name contains the words of the search.
    fn find(&mut self, is_forward: bool) {
        let (count, selected) = (self.items.len(), self.selected());
        let wanted = Filter::parse(&self.search);
        let step = |i| if is_forward { selected + i } else { selected + count - i };
        let found = (1..=count)
            .map(|i| step(i) % count)
            .find(|&at| self.items.get(at).is_some_and(|item| self.has(item, &wanted)));
        match found {
            Some(at) => self.select(at),
            None => {
                self.problems = vec![format!("nothing here has {:?} in its name", self.search)];
            }
        }
    }

    fn has(&self, item: &Item, wanted: &Filter) -> bool {
        match &item.subject {
            Subject::Family(number) => {
                wanted.matches(&self.model.families()[*number as usize].name, "")
            }
            Subject::Group(value) => wanted.matches(value, ""),
            Subject::Row(row) => {
                let row = &self.model.rows()[*row as usize];
                wanted.matches(&self.model.family(row).name, &row.labels)
            }
        }
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Action::Quit,
                _ => Action::Nothing,
            };
        }
        if self.prompt.is_some() {
            self.type_key(key.code);
            return Action::Nothing;
        }
        if std::mem::take(&mut self.is_help) {
            return if key.code == KeyCode::Char('q') { Action::Quit } else { Action::Nothing };
        }
        self.command(key.code)
    }

    fn command(&mut self, code: KeyCode) -> Action {
        if let Some(step) = self.replay.as_ref().and_then(|_| step(code)) {
            return Action::Step(step);
        }
        let page = isize::try_from(self.room).unwrap_or(isize::MAX);
        match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-page),
            KeyCode::PageDown => self.step(page),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX),
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => self.open(),
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace | KeyCode::Char('h') => self.back(),
            KeyCode::Char('f') => self.open_prompt(Purpose::Filter),
            KeyCode::Char('/') => self.open_prompt(Purpose::Search),
            KeyCode::Char('n') => self.find(true),
            KeyCode::Char('N') => self.find(false),
            KeyCode::Char('s') => {
                self.sort = match self.sort {
                    Sort::Name => Sort::Rate,
                    Sort::Rate => Sort::Value,
                    Sort::Value => Sort::Series,
                    Sort::Series => Sort::Name,
                };
                self.list();
            }
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.list();
            }
            KeyCode::Char('b') => self.group(),
            KeyCode::Char('a') => self.flatten(),
            KeyCode::Char('o') => {
                self.shows_own = !self.shows_own;
                self.list();
            }
            KeyCode::Char('?') => self.is_help = true,
            KeyCode::Char('p' | ' ') => {
                self.is_paused = !self.is_paused;
                return Action::Pace;
            }
            KeyCode::Char('+') => {
                self.interval = (self.interval / 2).max(INTERVALS[0]);
                return Action::Pace;
            }
            KeyCode::Char('-') => {
                self.interval = (self.interval * 2).min(INTERVALS[1]);
                return Action::Pace;
            }
            _ => {}
        }
        Action::Nothing
    }

    /// Opens a prompt.
    fn open_prompt(&mut self, purpose: Purpose) {
        let before = self.filter.0.clone();
        let text = if purpose == Purpose::Filter { before.clone() } else { String::new() };
        self.prompt = Some(Prompt { purpose, text, before });
    }

    /// Handles a key while a prompt is open.
    fn type_key(&mut self, code: KeyCode) {
        let Some(prompt) = &mut self.prompt else { return };
        match code {
            KeyCode::Char(c) if prompt.text.len() < MAX_PROMPT => prompt.text.push(c),
            KeyCode::Backspace => {
                prompt.text.pop();
            }
            KeyCode::Enter | KeyCode::Esc => {
                let Some(Prompt { purpose, text, before }) = self.prompt.take() else { return };
                match (purpose, code) {
                    (Purpose::Filter, KeyCode::Enter) => {}
                    (Purpose::Filter, _) => self.set_filter(&before),
                    (Purpose::Search, KeyCode::Enter) => {
                        self.search = text;
                        self.find(true);
                    }
                    (Purpose::Search, _) => {}
                }
                return;
            }
            _ => return,
        }
        if prompt.purpose == Purpose::Filter {
            let text = prompt.text.clone();
            self.set_filter(&text);
        }
    }

    /// Returns the path from the list of families to the current list.
    pub(super) fn path(&self) -> String {
        let text = match self.view() {
            ListView::Families => "families".to_owned(),
            ListView::All => "all series".to_owned(),
            ListView::Family { family, chosen, by } => {
                let mut text = family.0.clone();
                for (name, value) in chosen {
                    text.push_str(&format!(" > {name}={value:?}"));
                }
                if let Some(by) = by {
                    text.push_str(&format!(" by {by}"));
                }
                text
            }
            ListView::Series { family, labels } => crate::look::series_name(&family.0, labels),
        };
        printable(&text).to_string()
    }
}

/// Returns whether an item belongs to quipu's own families.
fn is_own(model: &Model, item: &Item) -> bool {
    let row = &model.rows()[item.row as usize];
    model.family(row).name.starts_with(OWN)
}

/// The prefix of quipu's own families.
const OWN: &str = "quipu_";

/// Returns the step for a key that acts differently in a replay.
fn step(code: KeyCode) -> Option<Step> {
    match code {
        KeyCode::Char('p' | ' ') => Some(Step::Play),
        KeyCode::Left => Some(Step::Seconds(-1)),
        KeyCode::Right => Some(Step::Seconds(1)),
        KeyCode::PageUp => Some(Step::Seconds(-60)),
        KeyCode::PageDown => Some(Step::Seconds(60)),
        KeyCode::Home => Some(Step::First),
        KeyCode::End => Some(Step::Last),
        KeyCode::Char('+') => Some(Step::Faster),
        KeyCode::Char('-') => Some(Step::Slower),
        _ => None,
    }
}

/// The maximum number of lines to scroll the page of a series.
const MAX_SCROLL: usize = 10_000;
