# Tests: the stages of `make test`, and longer searches for rare faults.
#
# The stages of other topics are in bindings.mk, storm.mk, fuzz.mk, miri.mk and counts.mk.

.PHONY: test-long
test-long: tools ## Search for rare faults: long storms, long fuzzing, all of miri (an hour or more)
	$(MAKE) storm power-loss test-arm
	$(MAKE) fuzz SECONDS_PER_FUZZ_TARGET=60 FUZZ_SEED=0
	$(MAKE) fuzz-exposition SECONDS_PER_FUZZ_TARGET=360 FUZZ_SEED=0
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

# The packages of every build for tests, because another selection has other features, and builds most
# dependencies again. Without quipu-bench, whose peers take a fifth of the time to compile: clippy
# checks that it compiles, and `make test-long` runs its tests.
WORKSPACE := --locked --workspace --all-features --exclude quipu-bench

.PHONY: test-rust
test-rust: ## Unit, property, state, HTTP and end-to-end tests
	$(FAST_TMP) PROPTEST_RNG_SEED=$(PROPTEST_SEED) $(CARGO) test $(WORKSPACE)

# Tests compare these pages with the daemon, and write them if this variable is set.
.PHONY: pages-daemon
pages-daemon: ## The tables of docs/daemon/configuration.md and metrics.md, and the picture of `quipu top`
	UPDATE_PAGES=1 $(CARGO) test --locked --package quipu-cli --lib --test daemon the_page_of_
	UPDATE_PAGES=1 $(CARGO) test --locked --package quipu-cli --test files the_picture_of_

# The tests of other languages read recordings by this command, which `make test-rust` builds, too.
QUIPU_COMMAND := target/debug/quipu

# Cargo knows whether it is up to date.
.PHONY: $(QUIPU_COMMAND)
$(QUIPU_COMMAND):
	$(CARGO) build $(WORKSPACE) --bin quipu

GO_MODULES := bench/peers/go crates/quipu/tests/judges/textparse crates/cli/tests/judges/statsd

.PHONY: test-go
test-go: ## The Go peers of the benchmarks, and the Go judges of the tests
	@for module in $(GO_MODULES); do (cd $$module && go vet ./... && go test ./...) || exit 1; done

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
			for features in "" alloc serde; do \
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
			$(CARGO) check --locked --quiet --package quipu-metrics --target $$target || exit 1; \
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

# Two preemptions find nearly all faults, in a fraction of the time. Without a bound, the models
# that would take hours have one of three.
PREEMPTIONS ?= 2

.PHONY: loom
loom: ## The interleavings of the lock-free parts; PREEMPTIONS= for all of them
	$(QUICK_RELEASE) $(if $(PREEMPTIONS),LOOM_MAX_PREEMPTIONS=$(PREEMPTIONS)) RUSTFLAGS="--cfg loom" $(CARGO) test --locked --release --target-dir target/loom \
		--package quipu-segment --package quipu-window --package quipu-arena --test loom

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
		--package quipu-arena --package quipu-segment --package quipu-window --package quipu-metrics --features quipu-metrics/window \
		--lib --test series --test file --test claims --test model --test instruments \
		--test behaviour
