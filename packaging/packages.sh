#!/usr/bin/env bash
# Builds the Debian package and the RPM package for a processor, by nfpm.
#
# usage: packages.sh PROCESSOR
source "$(dirname "$0")/lib.sh"

TREE=$(tree "$1")
ARCHITECTURE=$(debian_architecture "$1")
export TREE ARCHITECTURE VERSION=$version MAINTAINER="The quipu contributors <$maintainer>"
cd "$root/packaging"
for packager in deb rpm; do
	"$tools/bin/nfpm" package --config nfpm.yaml --packager "$packager" --target "$dist/" | sed "/^using\\|^created/d"
done
