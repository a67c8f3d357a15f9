#!/usr/bin/env bash
# Packs the Helm chart, and copies the plain manifest. `helm package` would write the time of the
# build into the archive.
source "$(dirname "$0")/lib.sh"

chart=$dist/build/chart/quipu
rm -rf "$chart"
mkdir -p "$(dirname "$chart")"
cp -R "$root/packaging/helm/quipu" "$chart"
pack "$dist/quipu-chart-$version.tgz" "$dist/build/chart" quipu
cp "$root/packaging/kubernetes/quipu.yaml" "$dist/quipu-$version-kubernetes.yaml"
