//! A function that counts, and a test of its metrics: `cargo test --example testing`.

use quipu::{CounterFamily, Description, LabelGroup, Registry};

#[derive(LabelGroup)]
struct Outcome {
    ok: bool,
}

fn send(mails: &CounterFamily<Outcome>, address: &str) {
    mails.inc(&Outcome { ok: address.contains('@') });
}

fn main() -> Result<(), quipu::Error> {
    let mails = Registry::global().register(Description::new("mails", "Mails."))?;
    send(&mails, "ada@example.org");
    Ok(())
}

#[test]
fn a_mail_is_counted_by_its_outcome() {
    let registry = Registry::new();
    let mails = registry.register(Description::new("mails", "Mails.")).unwrap();
    send(&mails, "ada@example.org");
    assert_eq!(registry.value("mails_total", &[("ok", "true")]), Some(1.0));
    assert_eq!(registry.value("mails_total", &[("ok", "false")]), None);
}
