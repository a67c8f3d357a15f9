#!/usr/bin/env bash
# Writes the container image for all processors.
#
# usage: image.sh PROCESSOR...
source "$(dirname "$0")/lib.sh"

trees=()
for processor; do
	trees+=("$processor=$(tree "$processor")")
done
certificates=$("$tools/python/bin/python3" -m certifi)
python3 "$root/packaging/image.py" "$version" "$dist/quipu-$version.oci.tar" \
	"$certificates" "${trees[@]}"
