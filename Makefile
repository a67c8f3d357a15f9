# The main targets. The other targets are in make/, one file for each topic.

CARGO ?= cargo
# No incremental compilation, as on a build server: what it keeps for the next build takes 40% of the
# disk space, and 10% of the processor time of a first build. CARGO_INCREMENTAL=1 turns it on.
export CARGO_INCREMENTAL ?= 0

.PHONY: help
help: ## List the targets
	@awk 'FNR == 1 { sub(/^# /, ""); print (NR > 1 ? "\n" : "") $$0 } \
		match($$0, /^[a-z-]+:.*## /) { \
			name = $$1; sub(/:.*/, "", name); \
			printf "  %-26s %s\n", name, substr($$0, RLENGTH + 1) \
		}' $(MAKEFILE_LIST)

.PHONY: run
run: ## Build the daemon and start it on 127.0.0.1:8081, with its state in state.quipu
	$(CARGO) build --profile quick --locked --package quipu-cli
	exec target/quick/quipu serve

# The stages of `make test`. Each is a target: a stage that failed can be run again by its name. Both
# lines run at the same time, because the stages of the first one mostly wait for processes and
# clocks, and the stages of the second one mostly compute.
WAITING := test-rust test-ruby test-python test-storm test-go
COMPUTING := fuzz loom miri test-targets test-counts

.PHONY: test
test: tools ## Install what the tests need, and run all tests
	@echo "== $(words $(WAITING) $(COMPUTING)) stages, 15 to 25 minutes on two cores in a fresh checkout"
	@MAKE="$(MAKE)" .ci/stages "$(WAITING)" "$(COMPUTING)"

# The crates that are published. Their documentation must not link to items of features that are off
# by default, because such a link is broken for a user without the feature.
PUBLISHED := quipu-metrics quipu-arena quipu-derive quipu-segment quipu-store quipu-window quipu-wire

.PHONY: lint
lint: ## Formatting, lints, documentation, links, public API, layers, generated pages
	$(CARGO) fmt --all --check
	cd fuzz && $(CARGO) fmt --check
	cd bindings/python && $(CARGO) fmt --check
	cd bindings/ruby/ext/quipu && $(CARGO) fmt --check
	$(CARGO) clippy --locked --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --all-features --no-deps --quiet
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked $(addprefix --package ,$(PUBLISHED)) --no-deps --quiet
	$(MAKE) --no-print-directory api
	$(REPORT) --check
	test -z "$$(gofmt -l $(GO_MODULES))"
	python3 .ci/words.py
	python3 .ci/prose.py
	python3 .ci/layers.py
	python3 .ci/names.py
	python3 .ci/links.py
	python3 .ci/release.py check
	@missing=$$(grep -o '`[A-Za-z0-9_/.-]*/[A-Za-z0-9_.-]*::[a-z_0-9]*`' docs/promises.md | tr -d '`' | \
		while read -r test; do \
			grep -qE "(fn|def) $${test##*::}\\b" "$${test%%::*}" || echo "$$test"; \
		done); \
	test -z "$$missing" || { echo "docs/promises.md names tests that do not exist: $$missing"; exit 1; }

.PHONY: book
book: ## Write the pages of docs as a book into target/book; needs mdbook
	mdbook build

.PHONY: fmt
fmt: ## Format everything
	$(CARGO) fmt --all
	cd fuzz && $(CARGO) fmt
	cd bindings/python && $(CARGO) fmt
	cd bindings/ruby/ext/quipu && $(CARGO) fmt
	gofmt -w $(GO_MODULES)

.PHONY: bench
bench: bench-rates bench-counting bench-scale bench-arena bench-wire bench-stores bench-daemon bench-agent ## Run all benchmarks with their peers, and write docs/benchmarks
	$(MAKE) pages

include $(addprefix make/,tools.mk test.mk api.mk bindings.mk storm.mk fuzz.mk miri.mk counts.mk judges.mk bench.mk package.mk release.mk)
