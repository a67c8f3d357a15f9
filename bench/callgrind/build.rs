//! Exports the names by which the C library announces restartable sequences, which `src/rseq.rs`
//! defines, so that the libraries find these instead.

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
