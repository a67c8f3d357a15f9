# Judges: other projects' suites, clients and servers, which check the daemon. They need a network.

# Prometheus' own packages and OpenTelemetry's generator of load, which take minutes to build.
TELEMETRYGEN := github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen@v0.161.0
JUDGE_OTLP := $(CURDIR)/target/judge-otlp

.PHONY: judge-otlp
judge-otlp: ## OTLP beside Prometheus' translation of names and OpenTelemetry's telemetrygen
	mkdir -p $(JUDGE_OTLP)
	cd crates/cli/tests/judges/otlp && go run . >$(JUDGE_OTLP)/names.jsonl
	QUIPU_OTLP_NAMES=$(JUDGE_OTLP)/names.jsonl $(CARGO) test --locked --package quipu-translate --lib \
		prometheus_translates_names_alike -- --ignored --nocapture
	GOBIN=$(JUDGE_OTLP) go install $(TELEMETRYGEN)
	TELEMETRYGEN=$(JUDGE_OTLP)/telemetrygen $(CARGO) test --locked --package quipu-cli --test daemon \
		telemetrygen -- --ignored --nocapture

.PHONY: judge-relabel
judge-relabel: ## Relabelling beside Prometheus' own package
	mkdir -p target/judge-relabel
	cd crates/cli/tests/judges/relabel && go run . >$(CURDIR)/target/judge-relabel/samples.jsonl
	QUIPU_RELABELLED=$(CURDIR)/target/judge-relabel/samples.jsonl $(CARGO) test --locked \
		--package quipu-translate --lib prometheus_relabels_alike -- --ignored --nocapture

.PHONY: judge-statsd
judge-statsd: ## Send the cases of statsd_exporter's tests to it and to the daemon, and compare /metrics
	$(CARGO) build --locked --package quipu-cli
	cd crates/cli/tests/judges/statsd && go run . $(CURDIR)/target/debug/quipu

DATADOG_GO := github.com/DataDog/datadog-go/v5@v5.9.1
HOT_SHOTS := hot-shots@17.1.1
STATSD_PYTHON := datadog==0.56.0 statsd==4.0.1
STATSD_CLIENTS := $(CURDIR)/target/judge-statsd-clients

judge-statsd-clients: TOOLS += node:nodejs npm:npm

.PHONY: judge-statsd-clients
judge-statsd-clients: tools ## Real clients of StatsD in Go, JavaScript and Python, over every transport
	$(CARGO) build --locked --package quipu-cli
	mkdir -p $(STATSD_CLIENTS)
	cp $(addprefix crates/cli/tests/judges/statsd-clients/sender.,go js) $(STATSD_CLIENTS)
	cd $(STATSD_CLIENTS) && rm -f go.mod go.sum && go mod init judge && go get $(DATADOG_GO) && \
		go build -o sender-go sender.go
	cd $(STATSD_CLIENTS) && npm install --silent --no-save $(HOT_SHOTS)
	python3 -m venv $(STATSD_CLIENTS)/venv
	$(STATSD_CLIENTS)/venv/bin/pip install --quiet --disable-pip-version-check $(STATSD_PYTHON)
	python3 crates/cli/tests/judges/statsd-clients/judge.py target/debug/quipu $(STATSD_CLIENTS)

PUSHGATEWAY := github.com/prometheus/pushgateway

.PHONY: judge-push
judge-push: ## Send the same requests to Pushgateway and to the daemon, and compare what they do
	$(CARGO) build --locked --package quipu-cli
	mkdir -p target/judge-push && cp crates/cli/tests/judges/push/pusher.go target/judge-push
	cd target/judge-push && rm -f go.mod && go mod init judge && go get $(PUSHGATEWAY)@v1.11.1 && \
		GOFLAGS=-mod=mod go build $(PUSHGATEWAY) && GOFLAGS=-mod=mod go build -o pusher pusher.go
	python3 crates/cli/tests/judges/push/judge.py target/judge-push/pushgateway target/debug/quipu \
		target/judge-push/pusher

# The suite is built in a copy of its module. The build fetches a part of Prometheus.
RECEIVER_SUITE := github.com/prometheus/compliance/remotewrite/receiver@v0.0.0-20260806071727-67b8327a2e93

.PHONY: judge-remote-write
judge-remote-write: ## Run the receiver suite of remote write 2.0 against the daemon
	$(CARGO) build --locked --package quipu-cli
	crates/cli/tests/judges/remote-write target/debug/quipu $(RECEIVER_SUITE)

# The suite needs a part of Prometheus. The daemon scrapes its target, and sends what that exposes.
SENDER_SUITE := github.com/prometheus/compliance/remotewrite@v0.0.0-20260223092825-818283e1171e
JUDGE_SENDER := $(CURDIR)/target/judge-remote-write-sender

.PHONY: judge-remote-write-sender
judge-remote-write-sender: ## Run the sender suite of remote write 2.0 against the daemon
	$(CARGO) build --locked --package quipu-cli
	mkdir -p $(JUDGE_SENDER)
	cp crates/cli/tests/judges/remote-write-sender/sender_test.go $(JUDGE_SENDER)
	cd $(JUDGE_SENDER) && rm -f go.mod go.sum && go mod init judge && go get $(SENDER_SUITE)
	cd $(JUDGE_SENDER) && QUIPU=$(CURDIR)/target/debug/quipu GOFLAGS=-mod=mod go test -count 1 -v .

.PHONY: judge-victoria-metrics
judge-victoria-metrics: ## Send to VictoriaMetrics with zstd, over an outage
	mkdir -p $(DAEMON_PEERS)
	cd $(DAEMON_MODULES)/victoria && GOBIN=$(DAEMON_PEERS) go install \
		github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics
	VICTORIA_METRICS=$(DAEMON_PEERS)/victoria-metrics $(CARGO) test --locked --package quipu-cli \
		--test daemon victoria_metrics -- --ignored --nocapture

JUDGE_OPENAPI := target/judge-openapi

$(JUDGE_OPENAPI)/complete: crates/cli/tests/judges/openapi/requirements.txt
	python3 -m venv --clear $(JUDGE_OPENAPI)
	$(JUDGE_OPENAPI)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

.PHONY: judge-openapi
judge-openapi: $(JUDGE_OPENAPI)/complete ## Send generated requests for all of docs/openapi.yaml to the daemon
	$(CARGO) build --locked --package quipu-cli
	$(JUDGE_OPENAPI)/bin/python crates/cli/tests/judges/openapi/judge.py target/debug/quipu
