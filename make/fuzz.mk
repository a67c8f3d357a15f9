# Fuzzing: the targets of fuzz/, with a constant seed by default.

SECONDS_PER_FUZZ_TARGET ?= 2
FUZZ_SEED ?= 1
FUZZ_TARGETS := segment_file inspect segment_neighbour buckets_json times_binary queue_records \
	arena_programs arena_addresses wire_stream wire_dialects wire_statsd wire_graphite wire_influx wire_text wire_families wire_write \
	wire_otlp store_files \
	$(addprefix wire_decode/,$(notdir $(wildcard fuzz/corpus/wire_decode/*)))

HOST := $(shell rustc -vV | sed -n 's/^host: //p')

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

FUZZ_BUILD := cd fuzz && RUSTFLAGS="$(FUZZ_FLAGS)" $(CARGO) build --locked --release --target $(HOST)

.PHONY: fuzz
fuzz: ## A short run of each fuzz target; SECONDS_PER_FUZZ_TARGET=3600 FUZZ_SEED=0 for a long one
	$(FUZZ_BUILD) --bins
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target $(addprefix fuzz/,$(FUZZ_TARGETS))

# The target `exposition` asks the parsers of Prometheus. `make fuzz` leaves it to `make test-long`,
# because it needs the daemon, which takes longer to build than all other targets.
.PHONY: fuzz-exposition
fuzz-exposition: ## The pages of all inputs, read by the parsers of Prometheus
	$(FUZZ_BUILD) --features exposition --bin exposition
	$(MAKE) --no-print-directory fuzz/exposition

EXPOSITION_JUDGE := fuzz/target/textparse
TEXTPARSE := crates/quipu/tests/judges/textparse

$(EXPOSITION_JUDGE): $(wildcard $(TEXTPARSE)/*)
	cd $(TEXTPARSE) && go build -o $(CURDIR)/$@ .

fuzz/exposition: $(EXPOSITION_JUDGE)
fuzz/exposition: export EXPOSITION_JUDGE := $(CURDIR)/$(EXPOSITION_JUDGE)

.PHONY: $(addprefix fuzz/,$(FUZZ_TARGETS) exposition)
$(addprefix fuzz/,$(FUZZ_TARGETS) exposition): fuzz/%:
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
