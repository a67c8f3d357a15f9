# Miri: interprets the tests of unsafe code, and detects undefined behaviour.

# `make test` runs a part, and `make test-long` all of miri. The part omits the slowest tests of code
# without unsafe blocks, such as the flight recorder in `history`, and of code that other tests cover.
MIRI_STAGES ?= miri-segment miri-arena
MIRI_SKIP ?= $(addprefix --skip ,history:: one_look_at_a_key hashes_of_similar_keys \
	a_family_is_mended_unless records_of_this_thread_are_not_read a_log_is_a_queue_of_times \
	random_events_take_little_more nothing_is_missing_because_tables truncated_and_changed_schemas \
	slots_that_are_newer_than_the_sum wrapped_entries_are_found a_write_error_is_reported \
	decimals_of_any_width any_frame_is_read)

# Miri comes only with nightly toolchains, and its features change from one to the next, so the
# tests pin a toolchain. rustup installs it; if it cannot, the tests say so and continue.
NIGHTLY := nightly-2026-10-30
MIRI := cargo +$(NIGHTLY) miri
MIRI_ARENA := $(MIRI) test --locked --quiet --target-dir target/miri/arena \
	--package quipu-arena --features serde --test behaviour --test programs --test serde

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
