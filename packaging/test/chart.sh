#!/usr/bin/env bash
# Checks the Helm chart: its lints, the plain manifest next to its output, and both against the types
# of Kubernetes' own package, which refuse an unknown field.
#
# usage: chart.sh [--renew]: with --renew, writes the plain manifest from the chart
source "$(dirname "$0")/../lib.sh"

helm=("$tools/bin/helm")
chart=$root/packaging/helm/quipu
plain=$root/packaging/kubernetes/quipu.yaml
work=$root/target/test-chart
rm -rf "$work/go" && mkdir -p "$work/go"

# A helm that is built from source assumes an old version of Kubernetes.
render() {
	"${helm[@]}" template quipu "$chart" --kube-version 1.31.0 "$@"
}

# The plain manifest is the output without Helm's own labels.
plain_manifest() {
	echo "# One agent on each node, which shows the segment files of the node's pods. This file is the output"
	echo "# of the Helm chart in packaging/helm: \`packaging/test/chart.sh --renew\` writes it."
	render | grep -Ev '^(# Source: .*| +helm\.sh/chart: .*| +app\.kubernetes\.io/managed-by: .*)$'
}

if [ "${1:-}" = --renew ]; then
	plain_manifest >"$plain"
	exit
fi
"${helm[@]}" lint --quiet --strict "$chart"
plain_manifest | diff "$plain" - || { echo "run packaging/test/chart.sh --renew" >&2 && exit 1; }

render >"$work/default.yaml"
render --set segments.enabled=false,service.enabled=false >"$work/small.yaml"
render --set state.hostPath=/var/lib/quipu,statsd.port=9125,nodeSelector.disk=ssd \
	--set 'tolerations[0].operator=Exists' --set-string settings='window = "60s"' >"$work/full.yaml"

cp "$root/packaging/test/manifests.go" "$work/go/main.go"
cd "$work/go"
go mod init manifests 2>/dev/null
GOFLAGS=-mod=mod go get k8s.io/api/apps/v1@v0.37.2 sigs.k8s.io/yaml@v1.6.0 2>/dev/null
GOFLAGS=-mod=mod go run . "$plain" "$work"/*.yaml
