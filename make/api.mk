# The public API of the published crates: lists in .ci/api, which a change of the API must renew.

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
