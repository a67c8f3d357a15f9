//! Tests of the screens of `quipu top`: each test feeds expositions, presses keys, and compares the
//! lines of the screen.

#![allow(clippy::unwrap_used)]

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};

use super::app::Action;
use super::*;
use quipu_client::Text;

/// A terminal that runs the program.
struct TestScreen {
    app: App,
    terminal: Terminal<TestBackend>,
    at: u64,
}

impl TestScreen {
    fn new(width: u16, height: u16) -> Self {
        let mut app = App::new("app.quipu".into(), Duration::from_secs(1));
        app.levels = Levels::ASCII;
        Self { app, terminal: Terminal::new(TestBackend::new(width, height)).unwrap(), at: 0 }
    }

    fn look(&mut self, text: &str) {
        let text = Text::of_bytes(text.into());
        self.app.look(&crate::look::read_text(&text), Duration::from_secs(self.at));
        self.at += 1;
    }

    fn press(&mut self, keys: &str) -> Action {
        let keys = keys.chars().map(|key| match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            'v' => KeyCode::Down,
            '^' => KeyCode::Up,
            key => KeyCode::Char(key),
        });
        let pressed = keys.map(|key| self.app.key(KeyEvent::new(key, KeyModifiers::NONE)));
        pressed.last().unwrap()
    }

    /// Returns the lines of the screen, without trailing spaces.
    fn lines(&mut self) -> Vec<String> {
        self.terminal.draw(|frame| view::draw(&mut self.app, frame)).unwrap();
        let buffer = self.terminal.backend().buffer();
        let width = usize::from(buffer.area.width);
        let rows = buffer.content().chunks(width);
        let text = |row: &[Cell]| -> String { row.iter().map(Cell::symbol).collect() };
        rows.map(|row| text(row).trim_end().to_owned()).collect()
    }

    /// Returns the lines of the list.
    fn list(&mut self) -> Vec<String> {
        let lines = self.lines();
        lines[4..lines.len() - 1].iter().filter(|line| !line.is_empty()).cloned().collect()
    }

    /// Returns the name of the selected item.
    fn selected(&mut self) -> String {
        self.list();
        let buffer = self.terminal.backend().buffer();
        let width = usize::from(buffer.area.width);
        let is_reversed = |row: &&[Cell]| row[0].modifier.contains(Modifier::REVERSED);
        let row = buffer.content().chunks(width).find(is_reversed).unwrap_or_default();
        let text: String = row.iter().map(Cell::symbol).collect();
        text.split_whitespace().next().unwrap_or_default().to_owned()
    }
}

fn text(round: u32) -> String {
    let mut text = String::from("# TYPE hits_total counter\n# HELP hits_total Requests.\n");
    for (path, code, count) in [("/a", 200, 5), ("/a", 500, 1), ("/b", 200, 7)] {
        text.push_str(&format!(
            "hits_total{{path=\"{path}\",code=\"{code}\"}} {}\n",
            count * round
        ));
    }
    text.push_str("# TYPE level gauge\nlevel 2.5\n# TYPE took histogram\n");
    for (bound, count) in [("0.1", 2), ("0.5", 3), ("+Inf", 4)] {
        text.push_str(&format!("took_bucket{{le=\"{bound}\"}} {}\n", count * round));
    }
    text + &format!("took_sum {round}\ntook_count {}\n", 4 * round)
}

fn filled_screen(width: u16, height: u16) -> TestScreen {
    let mut screen = TestScreen::new(width, height);
    (1..=3).for_each(|round| screen.look(&text(round)));
    screen
}

#[test]
fn families_are_shown_with_rates_quantiles_and_trends() {
    let lines = filled_screen(110, 9).lines();
    assert_eq!(lines[0], "quipu top  app.quipu  3 families  5 series  every 1s");
    assert_eq!(lines[1], "families");
    assert_eq!(lines[2], "");
    let columns: Vec<Vec<&str>> =
        lines[3..7].iter().map(|line| line.split_whitespace().collect()).collect();
    let names = ["NAME", "TYPE", "SERIES", "RATE", "VALUE", "P50", "P99"];
    assert_eq!(columns[0][..7], names);
    assert_eq!(columns[1][..5], ["hits_total", "counter", "3", "13", "39"]);
    assert_eq!(columns[2][..5], ["level", "gauge", "1", "-", "2.5"]);
    assert_eq!(columns[3][..7], ["took", "histogram", "1", "4", "12", "0.1", "0.5"]);
    assert!(lines[8].starts_with("q quit"), "{lines:?}");
    // A smaller screen shows fewer columns, then shorter names, but never panics.
    for width in 1..130 {
        for height in [1, 2, 5, 9] {
            filled_screen(width, height).lines();
        }
    }
    let lines = filled_screen(60, 9).lines();
    assert!(lines[3].contains("VALUE") && !lines[3].contains("P50"), "{lines:?}");
}

/// Returns the columns where a line's sparkline contains a character.
fn trend(screen: &mut TestScreen, name: &str) -> Vec<usize> {
    let lines = screen.lines();
    let from = lines[3].find("TREND").unwrap();
    let line = lines.iter().find(|line| line.starts_with(name)).unwrap();
    let marks = line.char_indices().skip(from);
    marks.filter(|(_, mark)| *mark != ' ').map(|(at, _)| at - from).collect()
}

#[test]
fn trends_of_counters_and_gauges_have_the_same_looks_below_each_other() {
    let mut screen = TestScreen::new(140, 12);
    for round in 1..=5 {
        let late = if round >= 3 { "# TYPE late gauge\nlate 1\n" } else { "" };
        screen.look(&(text(round * round) + late));
    }
    // Rates are known from the second look on.
    assert_eq!(trend(&mut screen, "level"), [0, 1, 2, 3, 4]);
    assert_eq!(trend(&mut screen, "hits_total"), [1, 2, 3, 4]);
    assert_eq!(trend(&mut screen, "took"), [1, 2, 3, 4]);
    assert_eq!(trend(&mut screen, "late"), [2, 3, 4]);
    screen.press("a");
    assert_eq!(trend(&mut screen, "hits_total{code=\"500\""), [1, 2, 3, 4]);
    assert_eq!(trend(&mut screen, "late"), [2, 3, 4]);
    // If there are more looks than characters, all lines show the last ones.
    (6..200).for_each(|round| screen.look(&text(round * round)));
    let all: Vec<usize> = (0..trend(&mut screen, "level").len()).collect();
    assert_eq!(trend(&mut screen, "level"), all);
    assert_eq!(trend(&mut screen, "hits_total{code=\"500\""), all);
}

#[test]
fn empty_columns_are_dropped_before_the_trend() {
    let head = |text: &str, keys: &str, width| {
        let mut screen = TestScreen::new(width, 12);
        (0..3).for_each(|_| screen.look(text));
        if !keys.is_empty() {
            screen.press(keys);
        }
        screen.lines()[3].split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let counter = "# TYPE hits_total counter\nhits_total{a=\"1\"} 1\nhits_total{a=\"2\"} 1\n";
    let gauge = "# TYPE level gauge\nlevel{a=\"1\"} 1\nlevel{a=\"2\"} 1\n";
    let took = "# TYPE took histogram\ntook_bucket{le=\"+Inf\"} 1\ntook_sum 1\ntook_count 1\n";
    for (text, width, expected) in [
        (counter, 100, "NAME TYPE SERIES RATE VALUE TREND"),
        (counter, 80, "NAME TYPE SERIES RATE VALUE TREND"),
        (counter, 180, "NAME TYPE SERIES RATE VALUE P50 P99 TREND"),
        (gauge, 70, "NAME TYPE SERIES VALUE TREND"),
        (gauge, 180, "NAME TYPE SERIES RATE VALUE P50 P99 TREND"),
        (took, 100, "NAME TYPE RATE VALUE P50 P99 TREND"),
        (took, 80, "NAME TYPE RATE VALUE TREND"),
    ] {
        assert_eq!(head(text, "", width), expected, "{width}: {text}");
    }
    assert_eq!(head(gauge, "\n", 60), "NAME VALUE TREND");
}

#[test]
fn a_narrow_terminal_drops_other_columns_before_the_trend() {
    let head = |width| {
        let lines = filled_screen(width, 9).lines();
        lines[3].split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(head(62), "NAME RATE VALUE TREND");
    assert_eq!(head(72), "NAME SERIES RATE VALUE TREND");
    assert_eq!(head(80), "NAME TYPE SERIES RATE VALUE TREND");
    let lines = filled_screen(62, 9).lines();
    assert!(lines[4].starts_with("hits_total ") && lines[4].contains('_'), "{lines:?}");
}

#[test]
fn a_list_that_is_longer_than_the_screen_counts_its_lines() {
    let mut screen = filled_screen(100, 7);
    assert_eq!(screen.lines()[1], "families  2 of 3");
    screen.press("a");
    assert_eq!(screen.lines()[1], "all series  2 of 5");
    assert_eq!(filled_screen(100, 8).lines()[1], "families");
}

#[test]
fn the_families_of_quipu_itself_are_hidden_at_first() {
    let mut screen = TestScreen::new(100, 12);
    screen.look("jobs 1\nquipu_keys 2\nquipu_up 3\n");
    assert_eq!(screen.lines()[1], "families  2 quipu_* families hidden: o shows them");
    assert_eq!(screen.list().len(), 1);
    screen.press("o");
    assert_eq!((screen.lines()[1].as_str(), screen.list().len()), ("families", 3));
    screen.press("o");
    screen.press("fquipu\n");
    assert_eq!(screen.list().len(), 2);
    screen.press("\n");
    assert_eq!(screen.lines()[1].split("  ").next(), Some("quipu_keys"));
}

#[test]
fn colors_mark_types_and_rates_unless_there_are_none() {
    let styles = |is_colored| {
        let mut screen = TestScreen::new(110, 9);
        screen.app.is_colored = is_colored;
        (1..=3).for_each(|_| screen.look(&text(1)));
        screen.look(&text(1).replace("took_count 4", "took_count 5"));
        let lines = screen.lines();
        let buffer = screen.terminal.backend().buffer();
        let style_of = |line: usize, word: &str| {
            let at = lines[line].rfind(word).unwrap();
            buffer.cell((u16::try_from(at).unwrap(), u16::try_from(line).unwrap())).unwrap().style()
        };
        (style_of(6, "histogram"), style_of(4, " 0 "), style_of(6, " 1 "))
    };
    let (kind, none, some) = styles(true);
    assert_eq!(kind.fg, Some(Color::Magenta));
    assert_eq!(some.fg, Some(Color::Green));
    assert!(
        none.add_modifier.contains(Modifier::DIM) && !some.add_modifier.contains(Modifier::DIM)
    );
    let (kind, none, some) = styles(false);
    assert_eq!([kind, none, some].map(|style| style.fg), [Some(Color::Reset); 3]);
}

#[test]
fn a_family_is_opened_down_to_its_series() {
    let mut screen = filled_screen(100, 30);
    screen.press("\n");
    assert_eq!(screen.lines()[1], "hits_total");
    assert_eq!(screen.list().len(), 3);
    screen.press("b");
    assert_eq!(screen.lines()[1], "hits_total by code");
    assert!(screen.list()[0].starts_with("200 "));
    screen.press("\n");
    assert_eq!(screen.lines()[1], "hits_total > code=\"200\"");
    screen.press("v\n");
    assert_eq!(screen.lines()[1], "hits_total{code=\"200\",path=\"/b\"}");
    let page = screen.list().join("\n");
    for part in
        ["help      Requests.", "label     path = /b", "value     21", "rate      7 a second"]
    {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    screen.press("\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}");
    assert_eq!(screen.lines()[1], "families");
    // A histogram of one series opens as a page with its buckets.
    screen.press("vv\n");
    let page = screen.list().join("\n");
    for part in ["count 12, sum 3, mean 0.25", "p50 0.1", "up to  observations", " 0.5 "] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    screen.look("level 1\n");
    assert_eq!(screen.list(), ["this series is gone"]);
}

#[test]
fn the_selection_stays_on_its_series() {
    let mut screen = filled_screen(100, 12);
    screen.press("a");
    assert_eq!((screen.list().len(), screen.lines()[1].as_str()), (5, "all series"));
    screen.press("v");
    let name = "hits_total{code=\"200\",path=\"/b\"}";
    assert_eq!(screen.selected(), name);
    screen.press("s");
    assert!(screen.lines()[1].contains("sorted by rate"));
    assert_eq!(screen.selected(), name);
    assert!(screen.list()[0].starts_with(name));
    screen.press("r");
    assert_eq!(screen.selected(), name);
    screen.look("level 1\nother 2\n");
    assert_eq!(screen.list().len(), 2);
    assert!(["level", "other"].contains(&&*screen.selected()));
    screen.look("");
    assert_eq!(screen.list(), Vec::<String>::new());
}

#[test]
fn the_first_item_is_selected_at_first() {
    let mut screen = filled_screen(100, 7);
    screen.press("as");
    assert_eq!(screen.list()[0].split_whitespace().nth(2), Some("7"));
    screen.press("r");
    assert!(screen.selected().starts_with("level"), "{:?}", screen.list());
}

#[test]
fn filters_hide_and_searches_move() {
    let mut screen = filled_screen(100, 12);
    screen.press("af500");
    assert_eq!(screen.list().len(), 1);
    assert_eq!(screen.lines().last().unwrap(), "filter: 500_");
    screen.press("\n");
    assert!(screen.lines()[1].ends_with("filter: 500"));
    // Escape closes the prompt, and then removes the filter.
    screen.press("fx\u{1b}");
    assert_eq!(screen.list().len(), 1);
    screen.press("\u{1b}");
    assert_eq!(screen.list().len(), 5);
    screen.press("/took\n");
    assert_eq!(screen.selected(), "took");
    screen.press("/hits\n");
    assert!(screen.selected().starts_with("hits_total"));
    screen.press("/nothing\n");
    assert!(screen.lines()[2].contains("nothing here has \"nothing\""));
}

#[test]
fn problems_are_a_line_and_the_rows_stay() {
    let mut screen = filled_screen(100, 12);
    screen.app.look(&Err("app.quipu: No such file".into()), Duration::from_secs(9));
    let lines = screen.lines();
    assert_eq!(lines[2], "app.quipu: No such file");
    assert_eq!(screen.list().len(), 3);
    screen.look("a 1\nb{\n");
    assert!(screen.lines()[2].contains("line 2"));
    let problem = Err("x\u{9b}2J\u{202e}.quipu: No such file".into());
    screen.app.look(&problem, Duration::from_secs(9));
    assert!(screen.lines()[2].starts_with("x\\u{9b}2J\\u{202e}.quipu"));
    screen.look("a 1\n{\"\u{1b}[31m\",x=\"\u{1b}[2J\"} 1\n");
    screen.press("a");
    assert!(!screen.lines().concat().contains('\u{1b}'));
    assert!(screen.list().concat().contains("\\u{1b}[2J"));
}

#[test]
fn keys_quit_pause_and_show_help() {
    let mut screen = filled_screen(100, 24);
    assert_eq!(screen.press("?"), Action::Nothing);
    assert!(screen.list().join("\n").contains("P99 are quantiles"));
    assert_eq!(screen.press("x"), Action::Nothing);
    assert_eq!(screen.press("p"), Action::Pace);
    assert!(screen.lines()[0].ends_with("paused"));
    assert_eq!(screen.press("p+++++++++"), Action::Pace);
    assert!(screen.lines()[0].ends_with("every 10ms"));
    assert_eq!(screen.press("q"), Action::Quit);
    let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.app.key(key), Action::Quit);
    // Any keys, in any order.
    let keys = "jkgGlhfa/bn\nNsrb?v^\u{1b}ab\n\n\nb\n";
    for i in 0..2000 {
        let at = (i * 7 + i / 5) % keys.chars().count();
        screen.press(&keys.chars().nth(at).unwrap().to_string());
        screen.lines();
        if i % 50 == 0 {
            screen.look(&text(1 + i as u32 % 3));
        }
    }
}

/// Prints the processor time of a refresh: the look, the rows, the screen.
#[test]
#[ignore = "a measurement: cargo test --release --lib refresh -- --ignored --nocapture"]
fn a_refresh_of_100_000_series_takes_little_time() {
    use quipu::label::Values;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.quipu");
    let registry = quipu::Registry::open(&path).unwrap();
    for family in 0..10 {
        let about = quipu::Description::new(format!("hits_{family}"), "Hits.").labels(["of", "by"]);
        let hits: quipu::CounterFamily<Values> = registry.register(about).unwrap();
        for i in 0..10_000 {
            let (of, by) = (format!("client-{i}"), format!("/path/{}", i % 100));
            hits.inc_by(&Values(&[&of, &by]), i);
        }
    }
    let mut source = Source::new(Target::File(path));
    let mut screen = TestScreen::new(120, 40);
    screen.press("as");
    let now = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let since = |begun: rustix::time::Timespec| {
        let time = now() - begun;
        Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
    };
    for round in 0..10 {
        let begun = now();
        let look = source.look();
        let looked = since(begun);
        screen.app.look(&look, Duration::from_secs(round));
        let updated = since(begun);
        screen.lines();
        let all = since(begun);
        let series = screen.app.items.len();
        println!("{series} series: look {looked:?}, and rows {updated:?}, and screen {all:?}");
    }
}
