# The one entry point. `make help` lists the targets.

CARGO ?= cargo
SECONDS_PER_FUZZ_TARGET ?= 10
FUZZ_SEED ?= 1
FUZZ_TARGETS := segment_file buckets_json times_binary arena_programs arena_addresses \
	wire_stream wire_dialects store_files \
	$(addprefix wire_decode/,$(notdir $(wildcard fuzz/corpus/wire_decode/*)))
# What the tests and benchmarks need from Debian's packages: command:package.
TOOLS := ab:apache2-utils wrk:wrk promtool:prometheus prometheus:prometheus \
	prometheus-pushgateway:prometheus-pushgateway g++:g++ \
	taskset:util-linux python3:python3 valgrind:valgrind ruby:ruby rake:rake puma:puma \
	redis-server:redis-server redis-cli:redis-tools
HOST := $(shell rustc -vV | sed -n 's/^host: //p')

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: run
run: ## Build the daemon and start it on 127.0.0.1:8081, with its state in state.quipu
	$(CARGO) build --release --locked --package quipu-server
	exec target/release/quipu serve

.PHONY: test
test: tools test-rust test-ruby test-python test-go test-targets loom fuzz test-counts miri ## Install what the tests need, and run them all
	@echo "all tests passed"

# The property tests begin with the same seed at each run, as the fuzzing does; PROPTEST_RNG_SEED is
# not set where cargo is run by hand, which takes another seed each time.
PROPTEST_SEED ?= 1

.PHONY: test-rust
test-rust: ## Unit, property, state, HTTP and end-to-end tests
	PROPTEST_RNG_SEED=$(PROPTEST_SEED) $(CARGO) test --locked --workspace --all-features

PYTHON_VENV := target/python/venv

# What other versions do differently must not fail a change that has nothing to do with it.
$(PYTHON_VENV)/complete: bindings/python/tests/requirements.txt | tools
	python3 -m venv --clear $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

.PHONY: test-python
test-python: tools $(PYTHON_VENV)/complete ## The Python package: its wheel, beside the real prometheus_client and gunicorn
	cd bindings/python && $(CARGO) fmt --check && $(CARGO) clippy --locked --quiet --all-targets \
		--target-dir $(CURDIR)/target/python/cargo -- -D warnings
	rm -rf target/python/wheels
	cd bindings/python && CARGO_TARGET_DIR=$(CURDIR)/target/python/cargo \
		$(CURDIR)/$(PYTHON_VENV)/bin/maturin build --release --locked --quiet \
		--interpreter $(CURDIR)/$(PYTHON_VENV)/bin/python --out $(CURDIR)/target/python/wheels
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps \
		target/python/wheels/*.whl
	cd bindings/python && $(CURDIR)/$(PYTHON_VENV)/bin/python -m pytest -q -p no:cacheprovider

.PHONY: bench-python
bench-python: test-python ## An increment from Python beside prometheus_client
	$(PYTHON_VENV)/bin/python bindings/python/bench/increment.py

.PHONY: test-ruby
test-ruby: tools ## The gem: its tests under the real interpreter and puma, and its installation
	cd bindings/ruby/ext/quipu && $(CARGO) clippy --locked --all-targets -- -D warnings
	cd bindings/ruby && rake test test_gem

.PHONY: test-go
test-go: ## The peers that the benchmarks drive
	cd bench/peers/go && go vet ./... && go test ./...

# Where rustup cannot give a target, the build says so instead of failing for what is no fault of
# the code.
ARENA_TARGETS := i686-unknown-linux-gnu thumbv7em-none-eabihf x86_64-unknown-none

# What needs no standard library.
WIRE_FEATURES := bson,capnp,colfer,flatbuffers,gencode,gob,hprose,msgpack,otlp,postcard,protobuf,quipu,$(strip \
	)remote-write,sereal,statsd,thrift,tsv,xdr

.PHONY: test-targets
test-targets: ## The arena and the formats without std and on 32 bits; each format alone
	$(CARGO) test --locked --package quipu-arena --no-default-features --no-run --quiet --lib
	@for target in $(ARENA_TARGETS); do \
		if rustup target list --installed 2>/dev/null | grep -qx $$target \
			|| rustup target add $$target; then \
			for features in "" alloc; do \
				echo "building quipu-arena for $$target with the features '$$features'"; \
				$(CARGO) build --locked --quiet --package quipu-arena --target $$target \
					--no-default-features --features "$$features" || exit 1; \
			done; \
		else \
			echo "NOT RUN: quipu-arena for $$target, which rustup does not give here"; \
		fi; \
	done
	@for target in i686-unknown-linux-gnu thumbv7em-none-eabihf; do \
		if rustup target list --installed 2>/dev/null | grep -qx $$target; then \
			echo "checking quipu-wire for $$target"; \
			$(CARGO) check --locked --quiet --package quipu-wire --target $$target \
				--no-default-features --features "$(WIRE_FEATURES)" || exit 1; \
		fi; \
	done
	@for feature in $$(echo $(WIRE_FEATURES),bitcode,json,rkyv,snappy | tr , ' '); do \
		echo "checking quipu-wire with $$feature alone"; \
		RUSTFLAGS="-D warnings" $(CARGO) check --locked --quiet --package quipu-wire \
			--target-dir target/features --no-default-features --features $$feature || exit 1; \
	done

.PHONY: test-counts
test-counts: tools ## The instructions of the arena, none above those of its peers
	$(CARGO) run --locked --release --quiet --package quipu-bench-callgrind -- check

.PHONY: loom
loom: ## Every interleaving of the lock-free parts
	RUSTFLAGS="--cfg loom" $(CARGO) test --locked --release --target-dir target/loom \
		--package quipu-segment --package quipu-window --package quipu-arena --test loom

# Coverage alone needs no nightly compiler. `cargo fuzz run TARGET` adds the address sanitizer.
FUZZ_FLAGS := --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Ccodegen-units=1

# Each format's decoder is a target with a fifth of the time, in the binary that all share: behind
# the slash is the format.
#
# The tests begin with the same seed at each run, so that what fails fails again; a run of its own
# takes another one each time (FUZZ_SEED=0). With a seed, the inputs are the same on all machines
# until the time or the runs are over: libFuzzer would read the corpus in the order of the file
# system, and read it again by the clock. Files of segments and stores take other ways through the
# code each time, and vary still.
RUNS_PER_FUZZ_SECOND := 20000

.PHONY: fuzz
fuzz: ## A short run of each fuzz target; SECONDS_PER_FUZZ_TARGET=3600 FUZZ_SEED=0 for a long one
	cd fuzz && RUSTFLAGS="$(FUZZ_FLAGS)" $(CARGO) build --locked --release --target $(HOST) --bins
	@for target in $(FUZZ_TARGETS); do \
		seconds=$(SECONDS_PER_FUZZ_TARGET); \
		case $$target in */*) seconds=$$(((seconds + 4) / 5));; esac; \
		runs=$$((seconds * $(RUNS_PER_FUZZ_SECOND))); \
		case $(FUZZ_SEED) in 0) runs=-1;; esac; \
		echo "fuzzing $$target for $$seconds s"; \
		mkdir -p fuzz/target/found/$$target fuzz/artifacts/$$target; \
		WIRE_FORMAT=$${target#*/} \
		fuzz/target/$(HOST)/release/$${target%%/*} -max_total_time=$$seconds -runs=$$runs \
			-seed=$(FUZZ_SEED) -seed_inputs="$$(echo fuzz/corpus/$$target/* | tr ' ' ,)" -reload=0 \
			-artifact_prefix=fuzz/artifacts/$$target/ -print_final_stats=1 -verbosity=0 \
			-rss_limit_mb=1024 -max_len=16384 \
			fuzz/target/found/$$target || exit 1; \
	done

# Miri comes with the nightly toolchain only. Whoever has rustup gets it; where the toolchain
# cannot be had, the tests say so instead of failing for what is no fault of the code.
MIRI_ARENA := cargo +nightly miri test --locked --quiet --target-dir target/miri/arena \
	--package quipu-arena --test behaviour --test programs

.PHONY: miri
miri: ## The unsafe parts and the windows, under the interpreter that knows undefined behaviour
	@if cargo +nightly miri --version >/dev/null 2>&1 || rustup toolchain install nightly \
		--profile minimal --component miri --component rust-src; then \
		cargo +nightly miri setup && \
		$(MAKE) --jobs=2 miri-segment miri-arena; \
	else \
		echo "NOT RUN: miri, since rustup gives no nightly toolchain here"; \
	fi

# Two halves of about the same length, at the same time: each is one thread.
.PHONY: miri-segment
miri-segment:
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-strict-provenance" \
		cargo +nightly miri test --locked --target-dir target/miri \
		--package quipu-segment --package quipu-window --lib --test model --test faults

.PHONY: miri-arena
miri-arena:
	MIRIFLAGS="-Zmiri-strict-provenance" \
		cargo +nightly miri test --locked --quiet --target-dir target/miri/arena \
		--package quipu-wire --no-default-features \
		--features quipu,msgpack,colfer --lib -- pieces quipu:: msgpack colfer
	MIRIFLAGS="-Zmiri-strict-provenance" $(MIRI_ARENA)
	MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-tree-borrows" $(MIRI_ARENA)
	MIRIFLAGS="-Zmiri-strict-provenance" $(MIRI_ARENA) --target i686-unknown-linux-gnu

.PHONY: lint
lint: ## Formatting, lints, documentation
	$(CARGO) fmt --all --check
	cd fuzz && $(CARGO) fmt --check
	cd bindings/ruby/ext/quipu && $(CARGO) fmt --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --all-features --no-deps --quiet
	cd bench/peers/go && test -z "$$(gofmt -l .)"

.PHONY: fmt
fmt: ## Format everything
	$(CARGO) fmt --all
	cd fuzz && $(CARGO) fmt
	cd bindings/ruby/ext/quipu && $(CARGO) fmt
	cd bench/peers/go && gofmt -w .

.PHONY: bench
bench: bench-rates bench-counting bench-arena bench-wire bench-stores ## Run every benchmark beside its peers, and write docs/benchmarks

.PHONY: bench-rates
bench-rates: tools ## The windows and the daemon beside the Go packages and their server
	$(CARGO) build --release --locked --package quipu-server --package quipu-bench
	target/release/rates
	target/release/report rates
	target/release/rates_server --full --rounds 3
	target/release/report rates-server

.PHONY: bench-counting
bench-counting: ## Counters and histograms beside those of other libraries
	$(CARGO) build --release --locked --package quipu-bench
	target/release/counting_seed
	target/release/counting
	target/release/report counting

.PHONY: bench-arena
bench-arena: tools ## The bump allocator beside others: instructions and times
	$(CARGO) build --release --locked --package quipu-bench --package quipu-bench-callgrind
	target/release/arena
	target/release/report arena
	target/release/arena-table measure

.PHONY: bench-wire
bench-wire: ## Messages on the wire beside the libraries of Go and crates
	$(CARGO) build --release --locked --package quipu-bench
	target/release/wire
	target/release/report wire

# A checkout of github.com/prometheus/client_ruby, where there is one: it is measured then.
CLIENT_RUBY ?=

# What the stores' benchmark needs besides: Redis, and Ruby with the libraries of its users.
STORES_PACKAGES := redis-server ruby ruby-dev ruby-redis ruby-connection-pool \
	ruby-prometheus-client-mmap

.PHONY: bench-stores
bench-stores: tools ## Stores from Rust, Ruby and Python beside what users have today
	@if ! dpkg -s $(STORES_PACKAGES) >/dev/null 2>&1; then \
		sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "installing $(STORES_PACKAGES)"; \
		$$sudo apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends \
			$(STORES_PACKAGES) >/dev/null; \
	fi
	$(CARGO) build --release --locked --package quipu-bench --package quipu-server
	cd bindings/ruby && rake compile
	python3 -m venv --clear target/bench-python
	target/bench-python/bin/pip install --quiet 'maturin>=1.9,<2' prometheus_client
	target/bench-python/bin/maturin build --release --quiet \
		--manifest-path bindings/python/Cargo.toml --out target/bench-python/wheels
	target/bench-python/bin/pip install --quiet target/bench-python/wheels/*.whl
	target/release/stores $(if $(CLIENT_RUBY),--client-ruby $(CLIENT_RUBY))
	target/release/report stores

# A mirror that fails once, or another apt that is at work, as on a machine that has just started:
# only the installation waits for it by itself.
APT_PATIENCE := -o Acquire::Retries=5 -o DPkg::Lock::Timeout=600

.PHONY: tools
tools: ## Install the programs that tests and benchmarks run, where they are missing
	@missing=""; for tool in $(TOOLS); do \
		command -v $${tool%%:*} >/dev/null || missing="$$missing $${tool##*:}"; \
	done; \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"; \
	ruby -rrbconfig -e 'exit File.exist?(RbConfig::CONFIG["rubyhdrdir"] + "/ruby.h")' 2>/dev/null \
		|| missing="$$missing ruby-dev"; \
	for library in minitest rack; do \
		ruby -e "require '$$library'" 2>/dev/null || missing="$$missing ruby-$$library"; \
	done; \
	ls /usr/lib/llvm-*/lib/libclang.so >/dev/null 2>&1 || missing="$$missing libclang-dev"; \
	if [ -n "$$missing" ]; then \
		sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "installing$$missing"; \
		end=$$(($$(date +%s) + 600)); \
		until $$sudo apt-get $(APT_PATIENCE) update -qq; do \
			[ $$(date +%s) -lt $$end ] || exit 1; sleep 10; \
		done; \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get $(APT_PATIENCE) install -y -qq \
			--no-install-recommends $$missing >/dev/null; \
	fi
