//! Draws the screen of `quipu top` as lines: a title, the current list, problems, the list or a
//! series, and the keys. Only the lines that fit on the screen are formatted.

use quipu::snapshot::Kind;
use quipu_segment::printable;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::app::{App, Purpose};
use super::list::{Item, ListView, Sort, Subject};
use super::number::{count, short};
use super::page;
use super::trend::LENGTH;
use crate::look::series_name;

/// The lines of a screen.
pub(super) struct Screen {
    pub(super) head: Vec<Line<'static>>,
    pub(super) body: Vec<Line<'static>>,
    pub(super) foot: Line<'static>,
}

/// Returns the number of lines in the head: the title, the path, problems, and the names of the
/// columns. In a replay, another line shows the moment.
fn head(app: &App) -> usize {
    if app.replay.is_some() { 5 } else { 4 }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const WRONG: Style = Style::new().fg(Color::Red);
const RATE_STYLE: Style = Style::new().fg(Color::Green);
const TREND_STYLE: Style = Style::new().fg(Color::Green);

/// Returns the style of a type's name.
fn type_style(kind: Kind) -> Style {
    Style::new().fg(match kind {
        Kind::Counter => Color::Cyan,
        Kind::Gauge => Color::Yellow,
        Kind::Histogram | Kind::Summary => Color::Magenta,
        _ => return Style::new(),
    })
}

/// Removes the colors of a screen, but keeps bold, dim and reversed styles.
fn without_colors(screen: &mut Screen) {
    let lines = screen.head.iter_mut().chain(&mut screen.body).chain([&mut screen.foot]);
    for line in lines {
        line.style.fg = None;
        line.spans.iter_mut().for_each(|span| span.style.fg = None);
    }
}

/// Draws on a terminal.
pub(super) fn draw(app: &mut App, frame: &mut Frame<'_>) {
    let area = frame.area();
    let head = head(app);
    let room = usize::from(area.height).saturating_sub(head + 1);
    app.fit(room);
    let mut screen = screen(app, Some(usize::from(area.width)), room);
    if !app.is_colored {
        without_colors(&mut screen);
    }
    let is_list = !app.is_help && !matches!(app.view(), ListView::Series { .. });
    let chosen =
        (is_list && !app.items.is_empty()).then(|| app.selected().saturating_sub(app.offset));
    let buffer = frame.buffer_mut();
    let mut put = |y: usize, line: &Line<'_>| {
        // This fits, because no line is beyond the area, whose height is a u16.
        let y = u16::try_from(y).unwrap_or(u16::MAX);
        if y < area.height {
            buffer.set_line(0, y, line, area.width);
        }
    };
    screen.head.iter().enumerate().for_each(|(y, line)| put(y, line));
    screen.body.iter().take(room).enumerate().for_each(|(y, line)| put(head + y, line));
    put(usize::from(area.height).saturating_sub(1), &screen.foot);
    if let Some(y) = chosen.and_then(|line| u16::try_from(head + line).ok()).filter(|_| room > 0) {
        // A reversed sparkline would show a bar for each value of zero.
        let names = screen.head.last().map(Line::to_string).unwrap_or_default();
        let without_trend = names.strip_suffix(TREND).map(str::len);
        let width = without_trend.and_then(|width| u16::try_from(width).ok());
        let line = Rect { y, height: 1, width: width.unwrap_or(area.width), ..area };
        let style = Style::new().fg(Color::Reset).add_modifier(Modifier::REVERSED);
        buffer.set_style(line.intersection(area), style);
    }
}

/// Formats a screen of this width, with at most `room` lines in its body. Without a width, the
/// lines are as long as their names.
pub(super) fn screen(app: &App, width: Option<usize>, room: usize) -> Screen {
    let (columns, body) = match app.view() {
        _ if app.is_help => (Line::default(), help(app)),
        ListView::Series { .. } => {
            let lines = page::lines(app, width.unwrap_or(MAX_NAME)).into_iter();
            (Line::default(), lines.skip(app.offset).take(room).collect())
        }
        _ => {
            let columns = Columns::new(app, width, room);
            let shown = app.items.iter().skip(app.offset).take(room);
            (columns.names(), shown.map(|item| columns.line(app, item)).collect())
        }
    };
    let mut head = vec![title(app)];
    head.extend(app.replay.as_ref().map(|playback| Line::styled(playback.moment(), BOLD)));
    head.extend([place(app, room, width.is_none()), problem(app), columns]);
    Screen { head, body, foot: foot(app) }
}

/// Returns the problems and notes of the last look as one line.
fn problem(app: &App) -> Line<'static> {
    let problems: Vec<&String> = app.problems.iter().chain(&app.notes).collect();
    let text = match problems[..] {
        [] => String::new(),
        [problem] => problem.clone(),
        [first, ref others @ ..] => format!("{first} (and {} more)", others.len()),
    };
    Line::styled(printable(&text).to_string(), WRONG)
}

fn title(app: &App) -> Line<'static> {
    let interval = humantime::format_duration(app.interval);
    let pace = match (&app.replay, app.is_paused) {
        (Some(playback), _) => playback.pace(),
        (None, true) => "paused".to_owned(),
        (None, false) => format!("every {interval}"),
    };
    let text = match app.model.looks() {
        0 => "waiting for the first sample".to_owned(),
        _ => {
            let families = app.model.used();
            let name = if families == 1 { "family" } else { "families" };
            format!("{} {name}  {} series", count(families), count(app.model.rows().len()))
        }
    };
    Line::from(vec![
        Span::styled("quipu top", BOLD),
        Span::raw(format!("  {}  {text}  {pace}", app.target)),
    ])
}

fn place(app: &App, room: usize, is_plain: bool) -> Line<'static> {
    let order = match (app.sort, app.is_reversed) {
        (Sort::Name, false) => None,
        (Sort::Name, true) => Some("name"),
        (Sort::Rate, _) => Some("rate"),
        (Sort::Value, _) => Some("value"),
        (Sort::Series, _) => Some("series"),
    };
    let mut text = String::new();
    let (shown, all) = (app.items.len().saturating_sub(app.offset).min(room), app.items.len());
    if shown < all && !app.is_help {
        text.push_str(&format!("  {} of {}", count(shown), count(all)));
    }
    let hidden = app.hidden_families();
    if hidden > 0 {
        let families = if hidden == 1 { "family" } else { "families" };
        let way = if is_plain { "--own shows them" } else { "o shows them" };
        text.push_str(&format!("  {} quipu_* {families} hidden: {way}", count(hidden)));
    }
    if let Some(order) = order {
        text.push_str(&format!("  sorted by {order}"));
        text.push_str(if app.is_reversed { ", reversed" } else { "" });
    }
    if !app.filter.0.is_empty() {
        text.push_str(&format!("  filter: {}", printable(&app.filter.0)));
    }
    Line::from(vec![Span::styled(app.path(), BOLD), Span::styled(text, DIM)])
}

fn foot(app: &App) -> Line<'static> {
    match &app.prompt {
        Some(prompt) => {
            let purpose = if prompt.purpose == Purpose::Filter { "filter" } else { "search" };
            Line::raw(format!("{purpose}: {}_", printable(&prompt.text)))
        }
        None if app.replay.is_some() => Line::styled(KEYS_OF_REPLAY, DIM),
        None => Line::styled(KEYS, DIM),
    }
}

const KEYS: &str =
    "q quit  Enter open  Esc back  f filter  / search  s sort  b by label  a all  ? help";

const KEYS_OF_REPLAY: &str =
    "q quit  Space play  Left, Right 1s  PageUp, PageDown 1m  +, - speed  Enter open  ? help";

fn help(app: &App) -> Vec<Line<'static>> {
    let text = if app.replay.is_some() { HELP_OF_REPLAY } else { HELP };
    text.lines().map(Line::raw).collect()
}

const HELP: &str = "\
Up, Down, PageUp, PageDown, Home, End   select
Enter, Right   open: a family, the series of a group, a series
Esc, Left      back; at the top, remove the filter
b              group the series of a family by the next label
a, o           all series, or families again; show or hide quipu's own families
s, r           next order: name, rate, value, number of series; reverse it
f              filter: all words must be in the name or the labels; !word must not
/, n, N        search, next, previous
p, Space       pause
+, -           look twice as often, half as often
q              quit

RATE is events per second since the last refresh. P50 and P99 are quantiles of the
observations since then; in parentheses, if there were none, of all observations.";

const HELP_OF_REPLAY: &str = "\
p, Space           play, pause; at the end, play from the start
Left, Right        a second back, forward
PageUp, PageDown   a minute back, forward
Home, End          first moment, last moment
+, -               play faster, slower: 1 to 60 times as fast as it was
Up, Down, g, G     select; first, last
Enter, l           open: a family, the series of a group, a series
Esc, h             back; at the top, remove the filter
b, a               group by the next label; all series, or families again
s, r, f, /         order, reverse it, filter, search
q                  quit

A gap, in which no process recorded, is skipped. RATE, P50 and P99 are of the time since the
tick before.";

/// The widths of the columns; a column that does not fit is omitted.
struct Columns {
    name: usize,
    has_type: bool,
    has_count: bool,
    has_rate: bool,
    has_quantiles: bool,
    trend: usize,
}

/// The widths of the columns, including the space before them.
const TYPE: usize = 10;
const COUNT: usize = 8;
const RATE: usize = 11;
const VALUE: usize = 17;
const QUANTILE: usize = 11;
/// The minimum width of names, before another column is shown.
const MIN_NAME: usize = 24;
/// The maximum width of names, before another column is shown.
const MAX_NAME: usize = 100;
/// The width of long names in a narrow terminal, before columns other than the trend are omitted.
const NARROW_NAME: usize = 32;
/// The name of the last column, after a space.
const TREND: &str = " TREND";
/// The minimum width of a sparkline.
const MIN_TREND: usize = 8;

impl Columns {
    fn new(app: &App, width: Option<usize>, room: usize) -> Self {
        let shown = app.items.iter().skip(app.offset).take(room);
        let longest = shown.map(|item| Span::raw(name(app, item)).width()).max().unwrap_or(0);
        let wanted = longest.max(MIN_NAME).min(if width.is_some() { MAX_NAME } else { usize::MAX });
        let is_flat = app.items.iter().all(|item| item.count == 1);
        let has_any = |types: &[Kind]| app.items.iter().any(|item| types.contains(&item.kind));
        let has_rates = has_any(&[Kind::Counter, Kind::Histogram, Kind::Summary]);
        let has_some_quantiles = has_any(&[Kind::Histogram, Kind::Summary]);
        let mut rest = width.map_or(usize::MAX, |width| width.saturating_sub(VALUE));
        // The most useful columns are first, and empty columns last.
        let take = |rest: &mut usize, column: usize, least: usize, is_wanted: bool| {
            let has_room = is_wanted && *rest >= column + least;
            *rest -= if has_room { column } else { 0 };
            has_room
        };
        let mut has_rate = has_rates;
        rest = rest.saturating_sub(if has_rate { RATE } else { 0 });
        // A space precedes it. Plain output of two looks contains no sparkline, because two looks
        // are not a trend, unless they are from a recording.
        let has_trend = width.is_some() || app.replay.is_some();
        // In a narrow terminal, a trend is more useful than the other columns.
        let kept = match has_trend && rest > MIN_NAME + MIN_TREND {
            true => wanted.min(NARROW_NAME) + 1 + MIN_TREND,
            false => MIN_NAME,
        };
        let has_count = take(&mut rest, COUNT, kept, !is_flat);
        let has_type = take(&mut rest, TYPE, kept, !matches!(app.view(), ListView::Family { .. }));
        let mut has_quantiles = take(&mut rest, 2 * QUANTILE, kept, has_some_quantiles);
        let name = wanted.min(MIN_NAME.max(rest.saturating_sub(1 + MIN_TREND)));
        let room = if has_trend { rest.saturating_sub(name + 1) } else { 0 };
        let trend = if room < MIN_TREND { 0 } else { room.min(LENGTH) };
        let least = if trend > 0 { name + 1 + trend } else { MIN_NAME };
        has_rate |= take(&mut rest, RATE, least, !has_rate);
        has_quantiles |= take(&mut rest, 2 * QUANTILE, least, !has_some_quantiles);
        let wanted = if trend > 0 { name } else { wanted };
        Self { name: rest.min(wanted), has_type, has_count, has_rate, has_quantiles, trend }
    }

    fn names(&self) -> Line<'static> {
        let mut text = padded("NAME", self.name);
        if self.has_type {
            text.push_str(&format!(" {:<1$}", "TYPE", TYPE - 1));
        }
        if self.has_count {
            text.push_str(&format!("{:>COUNT$}", "SERIES"));
        }
        if self.has_rate {
            text.push_str(&format!("{:>RATE$}", "RATE"));
        }
        text.push_str(&format!("{:>VALUE$}", "VALUE"));
        if self.has_quantiles {
            text.push_str(&format!("{:>QUANTILE$}{:>QUANTILE$}", "P50", "P99"));
        }
        if self.trend > 0 {
            text.push_str(TREND);
        }
        Line::styled(text, BOLD)
    }

    fn line(&self, app: &App, item: &Item) -> Line<'static> {
        let mut spans = vec![Span::raw(padded(&name(app, item), self.name))];
        if self.has_type {
            let kind = format!(" {:<1$}", item.kind.as_str(), TYPE - 1);
            spans.push(Span::styled(kind, type_style(item.kind)));
        }
        if self.has_count {
            spans.push(Span::raw(format!("{:>COUNT$}", item.count)));
        }
        if self.has_rate {
            let rate = item.rate.map_or_else(|| "-".to_owned(), short);
            // The rate of a series without events is dim, so the other rates are easier to see.
            let style = if item.rate.is_some_and(|rate| rate != 0.0) { RATE_STYLE } else { DIM };
            spans.push(Span::styled(format!("{rate:>RATE$}"), style));
        }
        let mut text = format!("{:>VALUE$}", value(item));
        if self.has_quantiles {
            let (quantiles, is_recent) = item.quantiles(&app.model, [0.5, 0.99]);
            for quantile in quantiles {
                let quantile = match (quantile, is_recent) {
                    (None, _) => String::new(),
                    (Some(n), true) => short(n),
                    (Some(n), false) => format!("({})", short(n)),
                };
                text.push_str(&format!("{quantile:>QUANTILE$}"));
            }
        }
        if self.trend > 0 {
            let points = match &item.subject {
                Subject::Family(number) => app.model.trend(*number),
                Subject::Row(row) => app.model.rows()[*row as usize].points(),
                Subject::Group(_) => Vec::new(),
            };
            let points = aligned(points, app.model.looks());
            text.push(' ');
            spans.push(Span::raw(std::mem::take(&mut text)));
            let trend = app.levels.draw(points.into_iter(), self.trend);
            spans.push(Span::styled(trend, TREND_STYLE));
        }
        spans.push(Span::raw(text));
        Line::from(spans)
    }
}

/// Returns the points of the last looks, with a gap for each look before the first point. The gaps
/// align the points of one look in all lines, although for example a rate begins with the second
/// look.
fn aligned(points: Vec<f32>, looks: u32) -> Vec<f32> {
    let length = LENGTH.min(looks as usize);
    let mut all = vec![f32::NAN; length.saturating_sub(points.len())];
    all.extend(points);
    all
}

/// Returns the name of an item in the current list.
fn name(app: &App, item: &Item) -> String {
    let text = match (&item.subject, app.view()) {
        (Subject::Family(number), _) => app.model.families()[*number as usize].name.clone(),
        (Subject::Group(value), _) if value.is_empty() => "(none)".to_owned(),
        (Subject::Group(value), _) => value.clone(),
        (Subject::Row(row), view) => {
            let row = &app.model.rows()[*row as usize];
            match view {
                ListView::Family { .. } if !row.labels.is_empty() => row.labels.to_string(),
                _ => series_name(&app.model.family(row).name, &row.labels),
            }
        }
    };
    printable(&text).to_string()
}

/// Returns a total, a value, or the range of several values.
fn value(item: &Item) -> String {
    let is_sum = matches!(item.kind, Kind::Counter | Kind::Histogram | Kind::Summary);
    let (low, high) = item.range;
    if is_sum || item.count == 1 || low == high {
        return short(if is_sum { item.total } else { high });
    }
    let text = format!("{}..{}", short(low), short(high));
    if text.len() < VALUE { text } else { format!("..{}", short(high)) }
}

/// Truncates or pads a string to this number of terminal columns.
pub(super) fn padded(text: &str, width: usize) -> String {
    // Most characters take one column, and only combining characters take less.
    let mut cut: String = text.chars().take(width + 1).collect();
    let mut is_cut = cut.len() < text.len();
    while Span::raw(&cut).width() + usize::from(is_cut) > width && cut.pop().is_some() {
        is_cut = true;
    }
    if is_cut && width > 0 {
        cut.push('~');
    }
    let missing = width.saturating_sub(Span::raw(&cut).width());
    cut.extend(std::iter::repeat_n(' ', missing));
    cut
}
