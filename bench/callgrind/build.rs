//! Exports the names that the C library uses to announce restartable sequences. `src/rseq.rs`
//! defines these names, because the libraries must find its definitions instead.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        for name in ["__rseq_offset", "__rseq_size"] {
            for program in ["cells", "many_cpus"] {
                println!("cargo:rustc-link-arg-bin={program}=-Wl,--export-dynamic-symbol={name}");
            }
        }
    }
}
