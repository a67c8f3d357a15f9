//! Programs that must not compile: borrows that outlive their scope, and values never dropped.

#![cfg(not(miri))]

#[test]
fn misuse_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile_pass/*.rs");
    cases.compile_fail("tests/compile_fail/*.rs");
}
