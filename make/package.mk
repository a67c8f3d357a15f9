# Packages of a release, in target/dist, their tests, and the licenses of dependencies.
#
# The scripts are in packaging. PROCESSORS selects the processors.

PACKAGE_TOOLS := $(CURDIR)/target/package-tools
DIST := $(CURDIR)/target/dist
PROCESSORS ?= x86_64 aarch64
export ARCHITECTURES = $(PROCESSORS)
NFPM := github.com/goreleaser/nfpm/v2/cmd/nfpm
NFPM_VERSION := v2.45.2
HELM := helm.sh/helm/v3/cmd/helm
HELM_VERSION := v3.22.0
# The paths contain the versions, so that a new version is built. The scripts use the links in bin.
NFPM_PROGRAM := $(PACKAGE_TOOLS)/nfpm-$(NFPM_VERSION)/nfpm
HELM_PROGRAM := $(PACKAGE_TOOLS)/helm-$(HELM_VERSION)/helm

.PHONY: package
package: package-daemon wheels gems package-sums ## Build all packages of a release into target/dist

.PHONY: package-daemon
package-daemon: package-tools ## Build the daemon's programs, archives, .deb, .rpm, image and chart
	mkdir -p $(DIST)
	for processor in $(PROCESSORS); do \
		packaging/tree.sh $$processor && packaging/archive.sh $$processor && \
		packaging/packages.sh $$processor || exit 1; \
	done
	packaging/image.sh $(PROCESSORS)
	packaging/chart.sh
	$(MAKE) --no-print-directory package-sums

.PHONY: package-sums
package-sums: ## Write the checksums of all files in target/dist
	cd $(DIST) && rm -f SHA256SUMS && find . -maxdepth 1 -type f -printf '%P\n' | LC_ALL=C sort | \
		xargs sha256sum >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS

# Programs that apt does not install in the necessary version.
.PHONY: package-prerequisites
package-prerequisites:
	@command -v go >/dev/null || \
		{ echo "go is missing, which builds nfpm and helm: install Go from https://go.dev/dl"; exit 1; }
	@command -v rustup >/dev/null || \
		{ echo "rustup is missing, which installs the targets: install Rust from https://rustup.rs"; exit 1; }
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$$(python3 --version) is too old: install Python 3.11 or later as python3"; exit 1; }

# The program of this machine writes the pages of the packages for all processors.
.PHONY: package-tools
package-tools: tools $(PACKAGE_TOOLS)/python/complete $(NFPM_PROGRAM)
	mkdir -p $(PACKAGE_TOOLS)/bin && ln -sf $(NFPM_PROGRAM) $(PACKAGE_TOOLS)/bin/nfpm
	@for processor in $(sort $(PROCESSORS) $(shell uname -m)); do \
		rustup target list --installed | grep -qx $$processor-unknown-linux-musl || \
			rustup target add $$processor-unknown-linux-musl || exit 1; \
	done

$(PACKAGE_TOOLS)/python/complete: packaging/tools.txt | tools package-prerequisites
	python3 -m venv --clear $(PACKAGE_TOOLS)/python
	$(PACKAGE_TOOLS)/python/bin/pip install --quiet --disable-pip-version-check --no-deps \
		--require-hashes --requirement $<
	touch $@

$(NFPM_PROGRAM): | package-prerequisites
	GOBIN=$(@D) go install $(NFPM)@$(NFPM_VERSION)

$(HELM_PROGRAM): | package-prerequisites
	GOBIN=$(@D) go install $(HELM)@$(HELM_VERSION)

.PHONY: test-packages
test-packages: test-packages-daemon test-wheels ## Test the packages in target/dist

PACKAGE_TEST_TOOLS := debootstrap:debootstrap lintian:lintian rpm:rpm skopeo:skopeo umoci:umoci \
	qemu-aarch64-static:qemu-user-static rpmlint:rpmlint systemd-nspawn:systemd-container curl:curl
test-packages-daemon: TOOLS += $(PACKAGE_TEST_TOOLS)

.PHONY: test-packages-daemon
test-packages-daemon: tools $(HELM_PROGRAM) ## Test the daemon's packages in namespaces and a Debian chroot; needs root
	mkdir -p $(PACKAGE_TOOLS)/bin && ln -sf $(HELM_PROGRAM) $(PACKAGE_TOOLS)/bin/helm
	packaging/test/archive.sh
	packaging/test/image.sh
	packaging/test/deb.sh
	packaging/test/service.sh
	packaging/test/rpm.sh
	packaging/test/chart.sh

.PHONY: test-packages-twice
test-packages-twice: package-tools ## Build the daemon's packages in two folders, and compare their bytes
	packaging/test/twice.sh

# A cargo-deny of the machine is used, if it is installed.
DENY_TOOL := $(CURDIR)/target/deny
DENY = $(or $(shell command -v cargo-deny),$(DENY_TOOL)/bin/cargo-deny)
DENIED_WORKSPACES := . bindings/python bindings/ruby/ext/quipu

$(DENY_TOOL)/bin/cargo-deny: packaging/deny.txt
	python3 -m venv --clear $(DENY_TOOL)
	$(DENY_TOOL)/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
		--requirement $<

.PHONY: deny
deny: $(DENY) ## Check licenses and sources of dependencies by deny.toml
	@for workspace in $(DENIED_WORKSPACES); do \
		$(DENY) --locked --config $(CURDIR)/deny.toml --manifest-path $$workspace/Cargo.toml \
			check --hide-inclusion-graph licenses bans sources || exit 1; \
	done
