//! Programs that must not compile, and the messages that users get: mistakes in derives and macros,
//! and arena borrows that outlive their scope. `TRYBUILD=overwrite` records the messages again.

#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/arena/pass/*.rs");
    cases.pass("tests/macros/pass/*.rs");
    cases.compile_fail("tests/arena/fail/*.rs");
    cases.compile_fail("tests/derive/*.rs");
    cases.compile_fail("tests/macros/*.rs");
    cases.compile_fail("tests/traits/*.rs");
}
