# Bindings: the gem for Ruby and the wheel for Python, tested and measured.

# Both bindings are built in one directory, because they share half of their crates.
BINDINGS := $(CURDIR)/target/bindings
PYTHON_VENV := target/python/venv

# The versions are pinned: a new release of a peer must not fail an unrelated change.
$(PYTHON_VENV)/complete: bindings/python/tests/requirements.txt | tools
	python3 -m venv --clear $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

# The wheel for the tests, installed in their virtual environment.
.PHONY: wheel
wheel: tools $(PYTHON_VENV)/complete
	rm -rf target/python/wheels
	cd bindings/python && $(QUICK_RELEASE) CARGO_TARGET_DIR=$(BINDINGS) \
		$(CURDIR)/$(PYTHON_VENV)/bin/maturin build --release --locked --quiet \
		--interpreter $(CURDIR)/$(PYTHON_VENV)/bin/python --out $(CURDIR)/target/python/wheels
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps \
		target/python/wheels/*.whl

.PHONY: test-python
test-python: wheel $(QUIPU_COMMAND) ## The Python package: its wheel, with the real prometheus_client and gunicorn
	cd bindings/python && $(CARGO) fmt --check && $(CARGO) clippy --locked --quiet --all-targets \
		--target-dir $(BINDINGS) -- -D warnings
	cd bindings/python/python && $(CURDIR)/$(PYTHON_VENV)/bin/python -m mypy --strict \
		--cache-dir $(CURDIR)/target/python/mypy --package quipu_metrics
	cd target/python && venv/bin/python -m mypy.stubtest quipu_metrics
	cd bindings/python && $(CURDIR)/$(PYTHON_VENV)/bin/python -m pytest -q -p no:cacheprovider
	cd bindings/python && QUIPU_PURE_PYTHON=1 $(CURDIR)/$(PYTHON_VENV)/bin/python -m pytest -q \
		-p no:cacheprovider -m 'not native'

# The files of a release: a wheel for each platform, one without the native part for all others, and
# the sources. zig links against the oldest glibc that a wheel supports. auditwheel checks only the
# wheels for glibc, because it reads the libraries of this machine, which have no musl.
WHEELS := target/dist
# The time of the files in packages, so that the bytes do not depend on the time of the build.
wheels gems: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
WHEEL_TOOLS := target/python/wheel-tools
WHEEL_TARGETS := x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu \
	x86_64-unknown-linux-musl aarch64-unknown-linux-musl

$(WHEEL_TOOLS)/complete: bindings/python/wheel-tools.txt | tools
	python3 -m venv --clear $(WHEEL_TOOLS)
	$(WHEEL_TOOLS)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

.PHONY: wheels
wheels: $(WHEEL_TOOLS)/complete ## The Python package for PyPI: wheels and sources, in target/dist
	rustup target add $(WHEEL_TARGETS)
	rm -f $(WHEELS)/quipu_metrics-*
	for target in $(WHEEL_TARGETS); do \
		case $$target in *-musl) oldest=musllinux_1_2 ;; *) oldest=manylinux2014 ;; esac; \
		PATH="$(CURDIR)/$(WHEEL_TOOLS)/bin:$$PATH" CARGO_TARGET_DIR=$(BINDINGS) maturin build \
			--release --locked --quiet --zig --target $$target --compatibility $$oldest \
			--manifest-path bindings/python/Cargo.toml --out $(WHEELS) || exit 1; \
	done
	$(WHEEL_TOOLS)/bin/maturin sdist --manifest-path bindings/python/Cargo.toml --out $(WHEELS)
	$(WHEEL_TOOLS)/bin/python bindings/python/pure_wheel.py \
		$(WHEELS)/quipu_metrics-*-manylinux*_x86_64.whl $(WHEELS)
	for wheel in $(WHEELS)/quipu_metrics-*-manylinux*.whl; do \
		$(WHEEL_TOOLS)/bin/auditwheel show $$wheel | tr '\n' ' ' | \
			grep -q 'consistent with the following platform tag: "manylinux_2_17_' || exit 1; \
	done
	$(WHEEL_TOOLS)/bin/abi3audit --strict --summary $(WHEELS)/quipu_metrics-*-abi3-*.whl

.PHONY: test-wheels
test-wheels: ## The files of make wheels: their installation, and the program of the README
	.ci/install/python.sh $(WHEELS)

# The wheel as users build it. That of the tests has no link-time optimisation, and is slower.
BENCH_PYTHON := target/bench-python

.PHONY: bench-wheel
bench-wheel: tools
	python3 -m venv --clear $(BENCH_PYTHON)
	$(BENCH_PYTHON)/bin/pip install --quiet 'maturin>=1.9,<2' prometheus_client
	$(BENCH_PYTHON)/bin/maturin build --release --quiet \
		--manifest-path bindings/python/Cargo.toml --out $(BENCH_PYTHON)/wheels
	$(BENCH_PYTHON)/bin/pip install --quiet $(BENCH_PYTHON)/wheels/*.whl

.PHONY: bench-python
bench-python: bench-wheel ## An increment from Python, compared to prometheus_client
	$(BENCH_PYTHON)/bin/python bindings/python/bench/increment.py

# The installation of the gem builds its native part, and the tests of the gem use this build.
.PHONY: test-ruby
test-ruby: tools $(QUIPU_COMMAND) ## The gem: both packages, and its tests with the real interpreter and puma
	cd bindings/ruby/ext/quipu && $(CARGO) clippy --locked --quiet --all-targets \
		--target-dir $(BINDINGS) -- -D warnings
	cd bindings/ruby && $(QUICK_RELEASE) CARGO_TARGET_DIR=$(BINDINGS) rake test_gem test_native_gem test test_pure

# The packages for users, built with all optimisations.
.PHONY: gems
gems: tools ## The gem with its source, and the precompiled gem, in target/dist
	rm -f bindings/ruby/pkg/*.gem
	cd bindings/ruby && CARGO_TARGET_DIR=$(BINDINGS) rake gem gem:native
	mkdir -p target/dist
	cp bindings/ruby/pkg/*.gem target/dist/

# The native part for other tests.
NATIVE := bindings/ruby/lib/quipu/native.so

$(NATIVE): $(shell find bindings/ruby/ext $(addprefix crates/,arena quipu segment store window) -name target -prune -o \( -path '*/src/*.rs' -o -name Cargo.toml \) -print) | tools
	cd bindings/ruby && $(QUICK_RELEASE) CARGO_TARGET_DIR=$(BINDINGS) rake compile

.PHONY: bench-ruby
bench-ruby: tools ## An increment from Ruby, compared to prometheus-client in CLIENT_RUBY
	cd bindings/ruby && rake compile && ruby -Ilib bench/increment.rb $(abspath $(CLIENT_RUBY))
