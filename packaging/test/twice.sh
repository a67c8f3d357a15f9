#!/usr/bin/env bash
# Builds the packages of this commit in two other folders, with separate target folders, and fails if a
# byte differs. TWICE_PROCESSORS selects the processors, because each build takes minutes.
source "$(dirname "$0")/lib.sh"

work=$root/target/test-twice
processors=${TWICE_PROCESSORS:-$architectures}
rm -rf "$work"
for folder in first second/deeper; do
	checkout=$work/$folder
	mkdir -p "$(dirname "$checkout")"
	git clone --quiet --no-checkout "$root" "$checkout"
	git -C "$checkout" checkout --quiet "$(git -C "$root" rev-parse HEAD)"
	mkdir -p "$checkout/target"
	ln -s "$tools" "$checkout/target/package-tools"
	(
		unset CARGO_TARGET_DIR DIST
		cd "$checkout"
		for processor in $processors; do
			packaging/tree.sh "$processor"
			packaging/archive.sh "$processor"
			packaging/packages.sh "$processor"
		done
		# shellcheck disable=SC2086: the names of processors are words.
		packaging/image.sh $processors
		packaging/chart.sh
		cd target/dist
		find . -maxdepth 1 -type f | sort | xargs sha256sum
	) >"$work/$(basename "$checkout").sums"
	# The build takes gigabytes.
	rm -rf "$checkout"/target/*-linux-musl "$checkout/target/release" "$checkout/target/dist/build"
done
diff "$work/first.sums" "$work/deeper.sums" || fail "two builds differ"
echo "two builds of $(git -C "$root" rev-parse --short HEAD) give the same $(wc -l <"$work/first.sums") files"
