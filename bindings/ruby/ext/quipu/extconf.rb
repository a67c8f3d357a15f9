# frozen_string_literal: true

# Writes the Makefile that `gem install` and `rake compile` use to build the native part by cargo.

require "rbconfig"

cargo = ENV.fetch("CARGO", "cargo")
unless system(cargo, "--version", out: File::NULL, err: File::NULL)
  abort "building quipu requires Rust, but #{cargo} does not run: install Rust from " \
        "https://rustup.rs, or set CARGO to the path of cargo"
end

here = __dir__
# Cargo builds in the source directory unless the environment names another one.
target = ENV.fetch("CARGO_TARGET_DIR", File.join(here, "target"))
built = RbConfig::CONFIG["host_os"].include?("darwin") ? "libquipu_ruby.dylib" : "libquipu_ruby.so"
library = "native.#{RbConfig::CONFIG["DLEXT"]}"

File.write("Makefile", <<~MAKEFILE)
  # Written by extconf.rb.
  DESTDIR =
  sitearchdir = #{RbConfig::CONFIG["sitearchdir"]}
  RUBY = #{RbConfig.ruby}

  .PHONY: all install clean distclean

  all:
  \tRUBY="$(RUBY)" #{cargo} build --release --locked --manifest-path "#{here}/Cargo.toml" \\
  \t\t--target-dir "#{target}"
  \tcp "#{target}/release/#{built}" "#{library}"

  install: all
  \tmkdir -p "$(DESTDIR)$(sitearchdir)/quipu"
  \tcp "#{library}" "$(DESTDIR)$(sitearchdir)/quipu/#{library}.new"
  \tmv "$(DESTDIR)$(sitearchdir)/quipu/#{library}.new" "$(DESTDIR)$(sitearchdir)/quipu/#{library}"

  clean:
  \trm -f "#{library}"

  distclean: clean
  \trm -rf "#{here}/target"
  \trm -f Makefile
MAKEFILE
