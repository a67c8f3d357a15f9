# frozen_string_literal: true

# Writes the Makefile that `gem install` and `rake compile` use to build the native part by cargo.

require "rbconfig"
require_relative "../../lib/quipu/backend"

host = RbConfig::CONFIG["host_os"]
# Where the gem also works without the native part, a failed build must not fail the installation.
is_optional = Quipu::Backend::OPTIONAL.match?(host)
is_windows = Quipu::Backend::WINDOWS.match?(host)
WITHOUT = "quipu-metrics is installed without its native part: each process counts separately"

cargo = ENV.fetch("CARGO", "cargo")
if is_windows || !system(cargo, "--version", out: File::NULL, err: File::NULL)
  unless is_optional
    abort "building quipu requires Rust, but #{cargo} does not run: install Rust from " \
          "https://rustup.rs, or set CARGO to the path of cargo"
  end
  puts is_windows ? WITHOUT : "#{cargo} does not run. #{WITHOUT}"
  File.write("Makefile", <<~MAKEFILE)
    # Written by extconf.rb, without cargo.
    .PHONY: all install clean distclean
    all install:
    \t@echo "#{WITHOUT}"
    clean distclean:
  MAKEFILE
  exit
end

here = __dir__
# Cargo builds in the source directory unless the environment names another one.
target = ENV.fetch("CARGO_TARGET_DIR", File.join(here, "target"))
built = host.include?("darwin") ? "libquipu_ruby.dylib" : "libquipu_ruby.so"
library = "native.#{RbConfig::CONFIG["DLEXT"]}"
# The linker of macOS refuses symbols that only the interpreter defines, unless this flag is set.
flags = host.include?("darwin") ? " -- -C link-arg=-Wl,-undefined,dynamic_lookup" : ""
otherwise = is_optional ? " || echo \"#{WITHOUT}\"" : ""

File.write("Makefile", <<~MAKEFILE)
  # Written by extconf.rb.
  DESTDIR =
  sitearchdir = #{RbConfig::CONFIG["sitearchdir"]}
  RUBY = #{RbConfig.ruby}

  .PHONY: all install clean distclean

  all:
  \t{ RUBY="$(RUBY)" #{cargo} rustc --release --locked --manifest-path "#{here}/Cargo.toml" \\
  \t\t--target-dir "#{target}"#{flags} \\
  \t\t&& cp "#{target}/release/#{built}" "#{library}"; }#{otherwise}

  install: all
  \tmkdir -p "$(DESTDIR)$(sitearchdir)/quipu"
  \t{ cp "#{library}" "$(DESTDIR)$(sitearchdir)/quipu/#{library}.new" \\
  \t\t&& mv "$(DESTDIR)$(sitearchdir)/quipu/#{library}.new" \\
  \t\t"$(DESTDIR)$(sitearchdir)/quipu/#{library}"; }#{otherwise}

  clean:
  \trm -f "#{library}"

  distclean: clean
  \trm -rf "#{here}/target"
  \trm -f Makefile
MAKEFILE
