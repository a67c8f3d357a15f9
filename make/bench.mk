# Benchmarks: quipu and its peers, whose figures are in docs/benchmarks.

# Benchmarks of libraries are built and run twice: as Cargo builds a release by default, and with
# link-time optimisation, then without the peers in other languages.
BENCH := target/default-release
BENCH_LTO := target/release

.PHONY: bench-build
bench-build:
	$(CARGO) build --profile default-release --locked --package quipu-bench
	$(CARGO) build --release --locked --package quipu-bench

# Each page and each generated table of a README is written only by this program, from its records and
# its text in bench/reports.
REPORT = $(CARGO) build --quiet $(WORKSPACE) --bin report && target/debug/report

.PHONY: pages
pages: ## All pages of docs/benchmarks and the figures of README.md, from their records
	$(REPORT)

.PHONY: bench-rates
bench-rates: tools bench-build ## The windows and the daemon, compared to the Go packages and their server
	$(CARGO) build --release --locked --package quipu-cli
	$(BENCH)/rates
	$(BENCH_LTO)/rates --alone
	$(REPORT) rates
	target/release/rates_server
	$(REPORT) rates-server

# What is measured with link-time optimisation. The other workloads take minutes, and depend on memory
# more than on code.
LTO_COUNTING := handle enums route user histogram create encode

bench bench-counting: TOOLS += $(COUNTING_TOOLS)

.PHONY: bench-counting
bench-counting: tools bench-build ## Counters and histograms, compared to those of other libraries
	$(BENCH)/counting_seed
	$(BENCH_LTO)/counting_seed
	$(BENCH)/counting
	$(BENCH_LTO)/counting --only-rust $(addprefix --workload ,$(LTO_COUNTING))
	$(REPORT) counting counting-lto counting-seed series

.PHONY: bench-scale
bench-scale: ## Growing numbers of series, labels, threads, processes and families
	$(CARGO) build --profile default-release --locked --package quipu-bench
	$(BENCH)/scale
	$(REPORT) scale

.PHONY: bench-arena
bench-arena: tools bench-build ## The bump allocator, compared to others: instructions and times
	$(BENCH)/arena
	$(BENCH_LTO)/arena
	$(MAKE) record-counts

# What is measured with link-time optimisation: the first table of the report.
LTO_WIRE := counter batch-timer

.PHONY: bench-wire
bench-wire: bench-build ## Messages on the wire and streams of them, compared to Go libraries and Rust crates
	$(BENCH)/wire
	$(BENCH_LTO)/wire --without-go $(addprefix --workload ,$(LTO_WIRE))
	$(REPORT) wire streams

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
	$(CARGO) build --release --locked --package quipu-bench --package quipu-cli
	cd bindings/ruby && rake compile
	target/release/stores $(if $(CLIENT_RUBY),--client-ruby $(CLIENT_RUBY))
	$(REPORT) stores

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
	$(CARGO) build --release --locked --package quipu-cli
	$(CARGO) build --profile default-release --locked --package quipu-bench
	$(BENCH)/daemon
	$(REPORT) daemon

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
	$(CARGO) build --release --locked --package quipu-cli
	$(CARGO) build --profile default-release --locked --package quipu-bench
	$(BENCH)/agent $(AGENT_FLAGS)
	$(REPORT) agent
