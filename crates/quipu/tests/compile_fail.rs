//! Mistakes in derives do not compile, and the message says what is wrong and what to do.

#[test]
#[cfg_attr(miri, ignore = "it runs the compiler")]
fn what_cannot_be_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile-fail/*.rs");
}
