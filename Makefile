# The entry point for building, testing and measuring. `make help` lists the targets.

CARGO ?= cargo
SECONDS_PER_FUZZ_TARGET ?= 4
FUZZ_SEED ?= 1
FUZZ_TARGETS := segment_file inspect segment_neighbour buckets_json times_binary queue_records \
	arena_programs arena_addresses wire_stream wire_dialects wire_statsd wire_graphite wire_influx wire_text wire_families wire_write \
	wire_otlp store_files \
	$(addprefix wire_decode/,$(notdir $(wildcard fuzz/corpus/wire_decode/*)))
# The Debian packages that the tests and benchmarks need, as command:package.
TOOLS := ab:apache2-utils wrk:wrk promtool:prometheus prometheus:prometheus \
	prometheus-pushgateway:prometheus-pushgateway g++:g++ \
	taskset:util-linux unshare:util-linux faketime:faketime fusermount3:fuse3 \
	python3:python3 valgrind:valgrind ruby:ruby rake:rake puma:puma \
	redis-server:redis-server redis-cli:redis-tools tmux:tmux openssl:openssl
# Those of the other languages whose libraries `make bench-counting` measures. A path is a file of
# its package.
COUNTING_TOOLS := javac:default-jdk-headless mvn:maven node:nodejs npm:npm \
	/usr/include/prometheus/counter.h:prometheus-cpp-dev
# No incremental compilation, as on a build server: what it keeps for the next build takes 40% of the
# disk space, and 10% of the processor time of a first build. CARGO_INCREMENTAL=1 turns it on.
export CARGO_INCREMENTAL ?= 0
HOST := $(shell rustc -vV | sed -n 's/^host: //p')

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: run
run: ## Build the daemon and start it on 127.0.0.1:8081, with its state in state.quipu
	$(CARGO) build --profile quick --locked --package quipu-server
	exec target/quick/quipu serve

# The stages of `make test`. Each is a target, so that a failing stage can be run again alone.
STAGES := test-rust test-ruby test-python test-storm test-go test-targets loom fuzz test-counts miri

.PHONY: test
test: tools ## Install what the tests need, and run all tests
	@start=$$(date +%s); number=0; \
	for stage in $(STAGES); do \
		number=$$((number + 1)); \
		echo "== stage $$number of $(words $(STAGES)), make $$stage, after $$(($$(date +%s) - start)) s"; \
		$(MAKE) --no-print-directory $$stage || { \
			echo "== failed: run this stage alone with 'make $$stage'"; exit 1; \
		}; \
	done; \
	echo "== all tests passed, in $$(($$(date +%s) - start)) s"

.PHONY: test-long
test-long: tools ## Search for rare faults: long storms, long fuzzing, all of miri (an hour or more)
	$(MAKE) storm power-loss test-arm
	$(MAKE) fuzz SECONDS_PER_FUZZ_TARGET=60 FUZZ_SEED=0
	$(MAKE) loom PREEMPTIONS=
	$(MAKE) miri MIRI_STAGES="miri-segment miri-arena miri-arena-long" MIRI_SKIP=
	$(CARGO) test --locked --package quipu-bench

# Tests check correctness, not speed: without link-time optimisation, a release build takes a third
# of the time.
QUICK_RELEASE := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16

# The property tests start from the same seed in each run, as the fuzzing does. If cargo is run by
# hand, PROPTEST_RNG_SEED is not set, and each run takes another seed.
PROPTEST_SEED ?= 1

# Temporary files are in memory if there is room, since the tests sync thousands of small files. The
# tests of disks choose their own directory.
FAST_TMP := $(shell [ "$$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)" -gt 2000000 ] 2>/dev/null \
	&& echo TMPDIR=/dev/shm)

# Without quipu-bench, whose peers take a fifth of the time to compile: clippy checks that it compiles,
# and `make test-long` runs its tests.
.PHONY: test-rust
test-rust: ## Unit, property, state, HTTP and end-to-end tests
	$(FAST_TMP) PROPTEST_RNG_SEED=$(PROPTEST_SEED) $(CARGO) test --locked --workspace --all-features \
		--exclude quipu-bench

# The command, with which the tests of other languages read recordings. `make test-rust` builds it, too.
QUIPU_COMMAND := target/debug/quipu

$(QUIPU_COMMAND):
	$(CARGO) build --locked --package quipu-server --all-features

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
	cd bindings/python && $(QUICK_RELEASE) CARGO_TARGET_DIR=$(CURDIR)/target/python/cargo \
		$(CURDIR)/$(PYTHON_VENV)/bin/maturin build --release --locked --quiet \
		--interpreter $(CURDIR)/$(PYTHON_VENV)/bin/python --out $(CURDIR)/target/python/wheels
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps \
		target/python/wheels/*.whl

.PHONY: test-python
test-python: wheel $(QUIPU_COMMAND) ## The Python package: its wheel, with the real prometheus_client and gunicorn
	cd bindings/python && $(CARGO) fmt --check && $(CARGO) clippy --locked --quiet --all-targets \
		--target-dir $(CURDIR)/target/python/cargo -- -D warnings
	cd bindings/python && $(CURDIR)/$(PYTHON_VENV)/bin/python -m pytest -q -p no:cacheprovider

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

.PHONY: test-ruby
test-ruby: tools $(QUIPU_COMMAND) ## The gem: its tests with the real interpreter and puma, and its installation
	cd bindings/ruby/ext/quipu && $(CARGO) clippy --locked --all-targets -- -D warnings
	cd bindings/ruby && $(QUICK_RELEASE) rake test test_gem

.PHONY: bench-ruby
bench-ruby: tools ## An increment from Ruby, compared to prometheus-client in CLIENT_RUBY
	cd bindings/ruby && rake compile && ruby -Ilib bench/increment.rb $(abspath $(CLIENT_RUBY))

# The number of rounds, and the seed of all choices; 0 draws a random seed.
ROUNDS ?= 10000
SEED ?= 0
STORM := target/storm/release/storm

.PHONY: storm-tools
storm-tools: wheel
	cd bindings/ruby && $(QUICK_RELEASE) rake compile
	$(QUICK_RELEASE) $(CARGO) build --release --locked --quiet --package quipu-storm \
		--target-dir target/storm

.PHONY: storm
storm: storm-tools ## Random sequences of faults: ROUNDS=10000 SEED=0
	$(STORM) run --rounds $(ROUNDS) --seed $(SEED) --python $(PYTHON_VENV)/bin/python

.PHONY: power-loss
power-loss: storm-tools ## Power losses at random moments: ROUNDS=10000 SEED=0
	$(STORM) power --rounds $(ROUNDS) --seed $(SEED)

# A short run of both, always with the same seed. The timing of the processes still varies.
.PHONY: test-storm
test-storm: storm-tools ## A short run of make storm and of make power-loss
	$(STORM) run --rounds 300 --seed 1 --python $(PYTHON_VENV)/bin/python
	$(STORM) power --rounds 400 --seed 1

GO_MODULES := bench/peers/go crates/quipu/tests/judges/textparse crates/server/tests/judges/statsd

ARM := aarch64-unknown-linux-gnu
ARM_RUNNER := qemu-aarch64-static -L /usr/aarch64-linux-gnu
ARM_PACKAGES := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static

# Emulation has neither restartable sequences nor weak memory order. This tests layouts, casts and
# calls that differ on Arm; loom and miri test memory order.
.PHONY: test-arm
test-arm: ## The libraries on 64-bit Arm, emulated
	@if ! dpkg -s $(ARM_PACKAGES) >/dev/null 2>&1; then \
		sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "installing $(ARM_PACKAGES)"; \
		$$sudo apt-get $(APT_PATIENCE) update -qq && \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get $(APT_PATIENCE) install -y -qq \
			--no-install-recommends $(ARM_PACKAGES) >/dev/null; \
	fi
	rustup target add $(ARM)
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$(ARM_RUNNER)" QUIPU_TEST_RUNNER="$(ARM_RUNNER)" \
	$(FAST_TMP) $(CARGO) test --locked --target $(ARM) --target-dir target/arm \
		--package quipu-arena --package quipu-segment --package quipu-window --package quipu --features quipu/window \
		--lib --test series --test file --test claims --test model --test instruments \
		--test behaviour

# Prometheus' own packages and OpenTelemetry's generator of load, which take minutes to build.
TELEMETRYGEN := github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen@v0.161.0
JUDGE_OTLP := $(CURDIR)/target/judge-otlp

.PHONY: judge-otlp
judge-otlp: ## OTLP beside Prometheus' translation of names and OpenTelemetry's telemetrygen
	mkdir -p $(JUDGE_OTLP)
	cd crates/server/tests/judges/otlp && go run . >$(JUDGE_OTLP)/names.jsonl
	QUIPU_OTLP_NAMES=$(JUDGE_OTLP)/names.jsonl $(CARGO) test --locked --package quipu-server --lib \
		prometheus_translates_names_alike -- --ignored --nocapture
	GOBIN=$(JUDGE_OTLP) go install $(TELEMETRYGEN)
	TELEMETRYGEN=$(JUDGE_OTLP)/telemetrygen $(CARGO) test --locked --package quipu-server --test daemon \
		telemetrygen -- --ignored --nocapture

.PHONY: judge-relabel
judge-relabel: ## Relabelling beside Prometheus' own package
	mkdir -p target/judge-relabel
	cd crates/server/tests/judges/relabel && go run . >$(CURDIR)/target/judge-relabel/samples.jsonl
	QUIPU_RELABELLED=$(CURDIR)/target/judge-relabel/samples.jsonl $(CARGO) test --locked \
		--package quipu-server --lib prometheus_relabels_alike -- --ignored --nocapture

.PHONY: test-go
test-go: ## The Go peers of the benchmarks, and the Go judges of the tests
	@for module in $(GO_MODULES); do (cd $$module && go vet ./... && go test ./...) || exit 1; done

.PHONY: judge-statsd
judge-statsd: ## Send the cases of statsd_exporter's tests to it and to the daemon, and compare /metrics
	$(CARGO) build --locked --package quipu-server
	cd crates/server/tests/judges/statsd && go run . $(CURDIR)/target/debug/quipu

DATADOG_GO := github.com/DataDog/datadog-go/v5@v5.9.1
HOT_SHOTS := hot-shots@17.1.1
STATSD_PYTHON := datadog==0.56.0 statsd==4.0.1
STATSD_CLIENTS := $(CURDIR)/target/judge-statsd-clients

judge-statsd-clients: TOOLS += node:nodejs npm:npm

.PHONY: judge-statsd-clients
judge-statsd-clients: tools ## Real clients of StatsD in Go, JavaScript and Python, over every transport
	$(CARGO) build --locked --package quipu-server
	mkdir -p $(STATSD_CLIENTS)
	cp $(addprefix crates/server/tests/judges/statsd-clients/sender.,go js) $(STATSD_CLIENTS)
	cd $(STATSD_CLIENTS) && rm -f go.mod go.sum && go mod init judge && go get $(DATADOG_GO) && \
		go build -o sender-go sender.go
	cd $(STATSD_CLIENTS) && npm install --silent --no-save $(HOT_SHOTS)
	python3 -m venv $(STATSD_CLIENTS)/venv
	$(STATSD_CLIENTS)/venv/bin/pip install --quiet --disable-pip-version-check $(STATSD_PYTHON)
	python3 crates/server/tests/judges/statsd-clients/judge.py target/debug/quipu $(STATSD_CLIENTS)

PUSHGATEWAY := github.com/prometheus/pushgateway

.PHONY: judge-push
judge-push: ## Send the same requests to Pushgateway and to the daemon, and compare what they do
	$(CARGO) build --locked --package quipu-server
	mkdir -p target/judge-push && cp crates/server/tests/judges/push/pusher.go target/judge-push
	cd target/judge-push && rm -f go.mod && go mod init judge && go get $(PUSHGATEWAY)@v1.11.1 && \
		GOFLAGS=-mod=mod go build $(PUSHGATEWAY) && GOFLAGS=-mod=mod go build -o pusher pusher.go
	python3 crates/server/tests/judges/push/judge.py target/judge-push/pushgateway target/debug/quipu \
		target/judge-push/pusher

# The suite is built in a copy of its module. The build fetches a part of Prometheus.
RECEIVER_SUITE := github.com/prometheus/compliance/remotewrite/receiver@v0.0.0-20260806071727-67b8327a2e93

.PHONY: judge-remote-write
judge-remote-write: ## Run the receiver suite of remote write 2.0 against the daemon
	$(CARGO) build --locked --package quipu-server
	crates/server/tests/judges/remote-write target/debug/quipu $(RECEIVER_SUITE)

# The suite needs a part of Prometheus. The daemon scrapes its target, and sends what that exposes.
SENDER_SUITE := github.com/prometheus/compliance/remotewrite@v0.0.0-20260223092825-818283e1171e
JUDGE_SENDER := $(CURDIR)/target/judge-remote-write-sender

.PHONY: judge-remote-write-sender
judge-remote-write-sender: ## Run the sender suite of remote write 2.0 against the daemon
	$(CARGO) build --locked --package quipu-server
	mkdir -p $(JUDGE_SENDER)
	cp crates/server/tests/judges/remote-write-sender/sender_test.go $(JUDGE_SENDER)
	cd $(JUDGE_SENDER) && rm -f go.mod go.sum && go mod init judge && go get $(SENDER_SUITE)
	cd $(JUDGE_SENDER) && QUIPU=$(CURDIR)/target/debug/quipu GOFLAGS=-mod=mod go test -count 1 -v .

.PHONY: judge-victoria-metrics
judge-victoria-metrics: ## Send to VictoriaMetrics with zstd, over an outage
	mkdir -p $(DAEMON_PEERS)
	cd $(DAEMON_MODULES)/victoria && GOBIN=$(DAEMON_PEERS) go install \
		github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics
	VICTORIA_METRICS=$(DAEMON_PEERS)/victoria-metrics $(CARGO) test --locked --package quipu-server \
		--test daemon victoria_metrics -- --ignored --nocapture

JUDGE_OPENAPI := target/judge-openapi

$(JUDGE_OPENAPI)/complete: crates/server/tests/judges/openapi/requirements.txt
	python3 -m venv --clear $(JUDGE_OPENAPI)
	$(JUDGE_OPENAPI)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

.PHONY: judge-openapi
judge-openapi: $(JUDGE_OPENAPI)/complete ## Send generated requests for all of docs/openapi.yaml to the daemon
	$(CARGO) build --locked --package quipu-server
	$(JUDGE_OPENAPI)/bin/python crates/server/tests/judges/openapi/judge.py target/debug/quipu

# If rustup cannot install a target, the build says so instead of failing, since the code is not at
# fault.
ARENA_TARGETS := i686-unknown-linux-gnu thumbv7em-none-eabihf x86_64-unknown-none

# The formats that do not need the standard library.
WIRE_FEATURES := bson,capnp,colfer,exposition,flatbuffers,gencode,gob,graphite,hprose,influx,msgpack,otlp,postcard,$(strip \
	)protobuf,quipu,remote-write,sereal,statsd,thrift,tsv,xdr

.PHONY: test-targets
test-targets: ## The arena and the formats without std and on 32 bits; the library on macOS and Windows; each format alone
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
			echo "NOT RUN: quipu-arena for $$target, which rustup cannot install here"; \
		fi; \
	done
	@for target in x86_64-apple-darwin x86_64-pc-windows-gnu; do \
		if rustup target list --installed 2>/dev/null | grep -qx $$target \
			|| rustup target add $$target; then \
			echo "checking the metrics library for $$target"; \
			$(CARGO) check --locked --quiet --package quipu --target $$target || exit 1; \
		else \
			echo "NOT RUN: the metrics library for $$target, which rustup does not give here"; \
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
test-counts: tools ## Instruction counts: none risen, and no arena's above its peers'
	$(CARGO) run --locked --quiet --package quipu-bench-counts -- check

.PHONY: record-counts
record-counts: tools ## Record the instruction counts that test-counts compares with
	$(CARGO) run --locked --quiet --package quipu-bench-counts -- measure

# Two preemptions find nearly all faults, in a fraction of the time. Without a bound, the models
# that would take hours have one of three.
PREEMPTIONS ?= 2

.PHONY: loom
loom: ## The interleavings of the lock-free parts; PREEMPTIONS= for all of them
	$(QUICK_RELEASE) $(if $(PREEMPTIONS),LOOM_MAX_PREEMPTIONS=$(PREEMPTIONS)) RUSTFLAGS="--cfg loom" $(CARGO) test --locked --release --target-dir target/loom \
		--package quipu-segment --package quipu-window --package quipu-arena --test loom

# Coverage does not need a nightly compiler. `cargo fuzz run TARGET` adds the address sanitizer.
FUZZ_FLAGS := --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Ccodegen-units=1

# The decoder of each format is a target with a fifth of the time. All of them share one binary; the
# part of the target's name after the slash is the format.
#
# `make test` uses the same seed in each run, so that a failure is reproducible; with FUZZ_SEED=0,
# each run takes another seed. With a seed, the inputs are the same on all machines until the time
# or the runs are used up. That requires listing the corpus, turning reloading off (by default,
# libFuzzer reads the corpus in the order of the file system, and reads it again by the clock), and
# hash maps with a constant seed (`fuzz/fixed_seed.rs`). Targets with files of segments depend on
# threads and clocks, and still vary.
RUNS_PER_FUZZ_SECOND := 20000

.PHONY: fuzz
fuzz: ## A short run of each fuzz target; SECONDS_PER_FUZZ_TARGET=3600 FUZZ_SEED=0 for a long one
	cd fuzz && RUSTFLAGS="$(FUZZ_FLAGS)" $(CARGO) build --locked --release --target $(HOST) --bins
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target $(addprefix fuzz/,$(FUZZ_TARGETS))

.PHONY: $(addprefix fuzz/,$(FUZZ_TARGETS))
$(addprefix fuzz/,$(FUZZ_TARGETS)): fuzz/%:
	@seconds=$(SECONDS_PER_FUZZ_TARGET); \
	case $* in */*) seconds=$$(((seconds + 4) / 5));; esac; \
	runs=$$((seconds * $(RUNS_PER_FUZZ_SECOND))); \
	case $(FUZZ_SEED) in 0) runs=-1;; esac; \
	echo "fuzzing $* for $$seconds s"; \
	mkdir -p fuzz/target/found/$* fuzz/artifacts/$*; \
	target=$*; WIRE_FORMAT=$${target#*/} \
	fuzz/target/$(HOST)/release/$${target%%/*} -max_total_time=$$seconds -runs=$$runs \
		-seed=$(FUZZ_SEED) -seed_inputs="$$(echo fuzz/corpus/$*/* | tr ' ' ,)" -reload=0 \
		-artifact_prefix=fuzz/artifacts/$*/ -print_final_stats=1 -verbosity=0 \
		-rss_limit_mb=1024 -max_len=16384 \
		fuzz/target/found/$*

# `make test` runs a part that takes two minutes; `make test-long` runs all of miri. The part leaves
# out the slowest tests of code that has no unsafe blocks of its own, or that others cover.
MIRI_STAGES ?= miri-segment miri-arena
MIRI_SKIP ?= $(addprefix --skip ,each_record_is_looked_at_once a_log_is_a_queue_of_times \
	random_events_take_little_more nothing_is_missing_because_tables what_is_cut_or_changed \
	slots_that_are_newer_than_the_sum what_goes_round_is_found a_write_error_is_told \
	decimals_of_any_width what_is_written_is_read any_frame_is_read)

# Miri comes only with nightly toolchains, and its features change from one to the next, so the
# tests pin a toolchain. rustup installs it; if it cannot, the tests say so and continue.
NIGHTLY := nightly-2026-10-30
MIRI := cargo +$(NIGHTLY) miri
MIRI_ARENA := $(MIRI) test --locked --quiet --target-dir target/miri/arena \
	--package quipu-arena --test behaviour --test programs

.PHONY: miri
miri: ## The unsafe code and the windows under miri, which detects undefined behaviour
	@if $(MIRI) --version >/dev/null 2>&1 || rustup toolchain install $(NIGHTLY) \
		--profile minimal --component miri --component rust-src; then \
		$(MIRI) setup && \
		$(MAKE) --jobs=2 $(MIRI_STAGES); \
	else \
		echo "NOT RUN: miri, since rustup cannot install $(NIGHTLY) here"; \
	fi

# Two halves of about the same length, which run in parallel: each uses one thread.
.PHONY: miri-segment
miri-segment:
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-strict-provenance" \
		$(MIRI) test --locked --target-dir target/miri \
		--package quipu-segment --package quipu-window --lib --test model --test faults -- $(MIRI_SKIP)

.PHONY: miri-arena
miri-arena:
	MIRIFLAGS="-Zmiri-strict-provenance" \
		$(MIRI) test --locked --quiet --target-dir target/miri/arena \
		--package quipu-wire --no-default-features \
		--features quipu,msgpack,colfer --lib -- pieces quipu:: msgpack colfer $(MIRI_SKIP)
	MIRIFLAGS="-Zmiri-strict-provenance" $(MIRI_ARENA)

.PHONY: miri-arena-long
miri-arena-long:
	MIRIFLAGS="-Zmiri-strict-provenance -Zmiri-tree-borrows" $(MIRI_ARENA)
	MIRIFLAGS="-Zmiri-strict-provenance" $(MIRI_ARENA) --target i686-unknown-linux-gnu

.PHONY: lint
lint: ## Formatting, lints, documentation
	$(CARGO) fmt --all --check
	cd fuzz && $(CARGO) fmt --check
	cd bindings/ruby/ext/quipu && $(CARGO) fmt --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --all-features --no-deps --quiet
	test -z "$$(gofmt -l $(GO_MODULES))"
	python3 .ci/words.py
	@missing=$$(grep -o '`[A-Za-z0-9_/.-]*/[A-Za-z0-9_.-]*::[a-z_0-9]*`' docs/promises.md | tr -d '`' | \
		while read -r test; do \
			grep -qE "(fn|def) $${test##*::}\\b" "$${test%%::*}" || echo "$$test"; \
		done); \
	test -z "$$missing" || { echo "docs/promises.md names tests that do not exist: $$missing"; exit 1; }

.PHONY: fmt
fmt: ## Format everything
	$(CARGO) fmt --all
	cd fuzz && $(CARGO) fmt
	cd bindings/ruby/ext/quipu && $(CARGO) fmt
	gofmt -w $(GO_MODULES)

.PHONY: bench
bench: bench-rates bench-counting bench-scale bench-arena bench-wire bench-stores bench-daemon bench-agent ## Run all benchmarks with their peers, and write docs/benchmarks
	$(MAKE) bench-readme

# Benchmarks of libraries are built and run twice: as Cargo builds a release by default, and, with
# fewer rounds and without the peers in other languages, with link-time optimisation.
BENCH := target/default-release
BENCH_LTO := target/release
LTO_ROUNDS := 3

.PHONY: bench-build
bench-build:
	$(CARGO) build --profile default-release --locked --package quipu-bench
	$(CARGO) build --release --locked --package quipu-bench

# The tables of README.md take their figures from the reports.
.PHONY: bench-readme
bench-readme: ## The figures of README.md, from those in docs/benchmarks
	$(CARGO) run --profile default-release --quiet --locked --package quipu-bench --bin report -- readme

.PHONY: bench-rates
bench-rates: tools bench-build ## The windows and the daemon, compared to the Go packages and their server
	$(CARGO) build --release --locked --package quipu-server
	$(BENCH)/rates
	$(BENCH_LTO)/rates --runs $(LTO_ROUNDS) --alone
	$(BENCH)/report rates
	target/release/rates_server
	$(BENCH)/report rates-server

# What is measured with link-time optimisation. The other workloads take minutes, and depend on memory
# more than on code.
LTO_COUNTING := handle enums route user histogram encode

bench bench-counting: TOOLS += $(COUNTING_TOOLS)

.PHONY: bench-counting
bench-counting: tools bench-build ## Counters and histograms, compared to those of other libraries
	$(BENCH)/counting_seed
	$(BENCH_LTO)/counting_seed
	$(BENCH)/counting
	$(BENCH_LTO)/counting --runs $(LTO_ROUNDS) --only-rust $(addprefix --workload ,$(LTO_COUNTING))
	$(BENCH)/report counting

.PHONY: bench-scale
bench-scale: ## Growing numbers of series, labels, threads, processes and families
	$(CARGO) build --profile default-release --locked --package quipu-bench
	$(BENCH)/scale
	$(BENCH)/report scale

.PHONY: bench-arena
bench-arena: tools bench-build ## The bump allocator, compared to others: instructions and times
	$(BENCH)/arena
	$(BENCH_LTO)/arena --runs $(LTO_ROUNDS)
	$(BENCH)/report arena
	$(MAKE) record-counts

# What is measured with link-time optimisation: the first table of the report.
LTO_WIRE := counter batch-timer stream-mixed

.PHONY: bench-wire
bench-wire: bench-build ## Messages on the wire, compared to Go libraries and Rust crates
	$(BENCH)/wire
	$(BENCH_LTO)/wire --runs $(LTO_ROUNDS) --without-go $(addprefix --workload ,$(LTO_WIRE))
	$(BENCH)/report wire

# Optional: a checkout of github.com/prometheus/client_ruby to measure.
CLIENT_RUBY ?=

# The additional packages for the benchmark of stores: Redis, and Ruby with its metrics libraries.
STORES_PACKAGES := redis-server ruby ruby-dev ruby-redis ruby-connection-pool \
	ruby-prometheus-client-mmap

.PHONY: bench-stores
bench-stores: tools bench-wheel ## Stores from Rust, Ruby and Python, compared to existing ones
	@if ! dpkg -s $(STORES_PACKAGES) >/dev/null 2>&1; then \
		sudo=""; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "installing $(STORES_PACKAGES)"; \
		$$sudo apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -qq --no-install-recommends \
			$(STORES_PACKAGES) >/dev/null; \
	fi
	$(CARGO) build --release --locked --package quipu-bench --package quipu-server
	cd bindings/ruby && rake compile
	target/release/stores $(if $(CLIENT_RUBY),--client-ruby $(CLIENT_RUBY))
	target/release/report stores

# The peers of the daemon. Each is pinned, with what it depends on: statsd_exporter by its own module,
# which can be installed as it is, the others by modules of bench/peers/daemon. VictoriaMetrics takes
# five minutes to build.
STATSD_EXPORTER := github.com/prometheus/statsd_exporter@v0.31.0
DAEMON_PEERS := $(CURDIR)/target/bench-daemon
DAEMON_MODULES := bench/peers/daemon

$(DAEMON_PEERS)/complete: $(wildcard $(DAEMON_MODULES)/*/go.* $(DAEMON_MODULES)/*/package*.json) | tools
	mkdir -p $(DAEMON_PEERS)
	GOBIN=$(DAEMON_PEERS) go install $(STATSD_EXPORTER)
	cd $(DAEMON_MODULES)/pushgateway && GOBIN=$(DAEMON_PEERS) go install tool
	cd $(DAEMON_MODULES)/victoria && GOBIN=$(DAEMON_PEERS) go install tool
	cp $(DAEMON_MODULES)/statsd/package*.json $(DAEMON_PEERS)
	cd $(DAEMON_PEERS) && npm ci --silent --omit=optional --ignore-scripts --no-audit --no-fund
	touch $@

bench-daemon: TOOLS += node:nodejs npm:npm

# What is measured are other processes, so the program that loads them is built once.
.PHONY: bench-daemon
bench-daemon: tools $(DAEMON_PEERS)/complete ## The daemon, compared to bridges, gateways and agents
	$(CARGO) build --release --locked --package quipu-server
	$(CARGO) build --profile default-release --locked --package quipu-bench
	$(BENCH)/daemon
	$(BENCH)/report daemon

# The peers of the agent: vmagent is one of the daemon, too.
NODE_EXPORTER := github.com/prometheus/node_exporter@v1.9.1
PROMETHEUS_CLIENT := prometheus_client==0.26.0
AGENT_PYTHON := $(CURDIR)/target/bench-agent

$(DAEMON_PEERS)/vmagent: $(wildcard $(DAEMON_MODULES)/victoria/go.*)
	mkdir -p $(DAEMON_PEERS)
	cd $(DAEMON_MODULES)/victoria && GOBIN=$(DAEMON_PEERS) go install \
		github.com/VictoriaMetrics/VictoriaMetrics/app/vmagent
	touch $@

$(DAEMON_PEERS)/node_exporter:
	mkdir -p $(DAEMON_PEERS)
	GOBIN=$(DAEMON_PEERS) go install $(NODE_EXPORTER)

$(AGENT_PYTHON)/complete: | tools
	python3 -m venv $(AGENT_PYTHON)
	$(AGENT_PYTHON)/bin/pip install --quiet $(PROMETHEUS_CLIENT)
	touch $@

# Takes three quarters of an hour, for ten minutes of which the disk is busy. The folder for files on
# a disk is target. AGENT_FLAGS are for a part of it: `--workload top`, or `--quick` for a trial.
AGENT_FLAGS ?=

.PHONY: bench-agent
bench-agent: tools $(DAEMON_PEERS)/vmagent $(DAEMON_PEERS)/node_exporter $(AGENT_PYTHON)/complete ## Segments watched, inspected, shown, sent, recorded, and on a busy disk, compared to other agents
	$(CARGO) build --release --locked --package quipu-server
	$(CARGO) build --profile default-release --locked --package quipu-bench
	$(BENCH)/agent $(AGENT_FLAGS)
	$(BENCH)/report agent

# Retries for a mirror that fails once, and a timeout for the lock of another apt, as on a machine
# that has just started. By itself, apt waits for the lock only when it installs.
APT_PATIENCE := -o Acquire::Retries=5 -o DPkg::Lock::Timeout=600

.PHONY: tools
tools: ## Install missing programs that the tests and benchmarks run
	@missing=""; for tool in $(TOOLS); do \
		command -v $${tool%%:*} >/dev/null || test -e $${tool%%:*} || missing="$$missing $${tool##*:}"; \
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
