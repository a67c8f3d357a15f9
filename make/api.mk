# The public API of the published crates: lists in .ci/api, which a change of the API must renew. And
# the features alone, and the oldest versions of the dependencies and of Rust with which they build.

# The packages and features of clippy in `make lint`, because cargo builds dependencies again for another
# selection.
API_JSON = RUSTDOC=$(CURDIR)/.ci/rustdoc RUSTDOCFLAGS="-Z unstable-options --output-format json" \
	$(CARGO) doc --locked --workspace --all-features --lib --no-deps --quiet
API_LISTS = python3 .ci/api.py

.PHONY: api
api: ## Compare the public API of the published crates with its lists
	$(API_JSON)
	$(API_LISTS) $(or $(CARGO_TARGET_DIR),target)/doc $(PUBLISHED)

.PHONY: api-renew
api-renew: ## Write the lists of the public API
	$(API_JSON)
	$(API_LISTS) --renew $(or $(CARGO_TARGET_DIR),target)/doc $(PUBLISHED)

# Outside of the workspace, because the versions are resolved for the published crates alone.
OLDEST := $(CURDIR)/target/oldest

.PHONY: minimal-versions
minimal-versions: ## Check the published crates with the oldest versions of their dependencies
	rustup toolchain list | grep -q '^$(NIGHTLY)-' || rustup toolchain install $(NIGHTLY) --profile minimal
	python3 .ci/published.py $(OLDEST) $(PUBLISHED)
	cd $(OLDEST) && $(CARGO) +$(NIGHTLY) update --quiet -Z direct-minimal-versions
	cd $(OLDEST) && RUSTFLAGS=-Awarnings CARGO_TARGET_DIR=$(OLDEST)/target $(CARGO) +$(NIGHTLY) check \
		--workspace --all-features --lib --locked --quiet

# With a warning as an error, because a feature can leave an import unused.
QUIPU_FEATURES := derive window gzip zstd http arena tokio tower serve push
STORE_FEATURES := lmdb files redis
CHECK_ALONE = RUSTFLAGS="-D warnings" $(CARGO) check --locked --quiet --target-dir target/features \
	--no-default-features

.PHONY: features
features: ## Check quipu and quipu-store without features, and with each feature alone
	$(CHECK_ALONE) --package quipu-metrics --all-targets
	$(CHECK_ALONE) --package quipu-store --all-targets
	@for feature in $(QUIPU_FEATURES); do \
		echo "checking quipu with $$feature alone"; \
		$(CHECK_ALONE) --package quipu-metrics --features $$feature || exit 1; \
	done
	@for feature in $(STORE_FEATURES); do \
		echo "checking quipu-store with $$feature alone"; \
		$(CHECK_ALONE) --package quipu-store --features $$feature || exit 1; \
	done

RUST_VERSION = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: msrv
msrv: ## Check the published crates with the oldest supported version of Rust
	rustup toolchain list | grep -q '^$(RUST_VERSION)[.-]' || \
		rustup toolchain install $(RUST_VERSION) --profile minimal
	RUSTFLAGS=-Awarnings CARGO_TARGET_DIR=$(CURDIR)/target/msrv $(CARGO) +$(RUST_VERSION) check \
		--locked --lib --all-features --quiet $(addprefix --package ,$(PUBLISHED))

# All crates of a release, in any order: cargo finds the order of their dependencies.
RELEASED := $(patsubst %,--package %,$(shell sed -n '/^\[package\]/,/^\[/s/^name = "\(.*\)"/\1/p' crates/*/Cargo.toml))

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: package-crates
package-crates: ## Pack the crates, and build each from its package, with the others from theirs
	$(CARGO) package --locked $(RELEASED)
	mkdir -p target/dist && cp $(or $(CARGO_TARGET_DIR),target)/package/*-$(VERSION).crate target/dist/

# Compares with the last version on the registry. It needs 10 minutes to be installed.
.PHONY: semver
semver: ## Compare the public API with the last release; not before the first one
	cargo semver-checks --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-semver-checks
	$(CARGO) semver-checks check-release $(addprefix --package ,$(PUBLISHED)) --all-features
