# Variables of all scripts in this folder, which source this file.

set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dist=${DIST:-$root/target/dist}
tools=$root/target/package-tools
target=${CARGO_TARGET_DIR:-$root/target}
cargo=${CARGO:-cargo}

# The version of the packages. The test of upgrades builds packages with a later one.
version=${PACKAGE_VERSION:-$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")}

# The time of all files in the packages, because two builds of a commit must give the same bytes.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export BUILD_COMMIT=${BUILD_COMMIT:-$(git -C "$root" rev-parse --short=10 HEAD)}

# The address of package fields.
maintainer=${MAINTAINER_ADDRESS:-quipu@users.noreply.github.com}

# The processors, as `uname -m` and Rust name them.
architectures=${ARCHITECTURES:-x86_64 aarch64}

# Prints the name of a processor for Debian, Go and container images.
debian_architecture() {
	case $1 in
	x86_64) echo amd64 ;;
	aarch64) echo arm64 ;;
	*) echo "unknown processor: $1" >&2 && return 1 ;;
	esac
}

# Prints the folder with the files of the packages for a processor.
tree() {
	echo "$dist/build/$1/tree"
}

# Writes an archive whose bytes depend only on the files: pack ARCHIVE.tar.gz DIR NAME...
pack() {
	tar --create --directory "$2" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --format=ustar \
		--owner=0 --group=0 --numeric-owner "${@:3}" | gzip --no-name -9 >"$1"
}
