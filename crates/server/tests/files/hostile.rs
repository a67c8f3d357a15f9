//! The commands on files and directories that someone else prepared: no command prints what is no
//! exposition.

use std::fs;

use super::Home;

#[test]
fn labels_that_are_not_utf_8_are_replaced() {
    let home = Home::new();
    home.succeed(&["inc", "x_total{a=\"AAAA\"}"]);
    let mut bytes = fs::read(home.file()).unwrap();
    let at = bytes.windows(4).position(|four| four == b"AAAA").unwrap();
    bytes[at + 1] = 0xff;
    fs::write(home.file(), bytes).unwrap();
    for format in ["text", "openmetrics"] {
        let text = home.succeed(&["scrape", "--format", format, "app.quipu"]);
        assert!(text.contains("x_total{a=\"A\u{fffd}AA\"} 1"), "{text}");
    }
}
