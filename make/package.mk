# Packages of a release, and the licenses of dependencies.

# A cargo-deny of the machine is used, if it is installed.
DENY_TOOL := $(CURDIR)/target/deny
DENY = $(or $(shell command -v cargo-deny),$(DENY_TOOL)/bin/cargo-deny)
DENIED_WORKSPACES := . bindings/python bindings/ruby/ext/quipu

$(DENY_TOOL)/bin/cargo-deny: packaging/deny.txt
	python3 -m venv $(DENY_TOOL)
	$(DENY_TOOL)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
		--requirement $<

.PHONY: deny
deny: $(DENY) ## Check licenses and sources of dependencies by deny.toml
	@for workspace in $(DENIED_WORKSPACES); do \
		$(DENY) --locked --config $(CURDIR)/deny.toml --manifest-path $$workspace/Cargo.toml \
			check --hide-inclusion-graph licenses bans sources || exit 1; \
	done
