#!/usr/bin/env bash
# Installs the files that `make wheels` wrote, each in an empty environment without a compiler and
# without an index, and runs the Python program of the README.
#
#   python.sh DIRECTORY
#
# Other processors and musl are tested only if you name an interpreter for them, as a command:
# PYTHON_AARCH64="/usr/bin/qemu-aarch64-static -L ROOT ROOT/usr/bin/python3.11", where ROOT contains
# Debian's packages for arm64, and PYTHON_MUSL=/path/to/python. With SDIST=1, the sources are
# compiled as well, which takes minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
dist=$(realpath "${1:-target/dist}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The first program in Python of the README.
awk '/^```python$/ { on = 1; next } on && /^```$/ { exit } on' README.md >"$scratch/program.py"

# Runs the program with an interpreter, and checks its output. A wheel with the native part for
# another machine than the interpreter's would count in pure Python, with a warning.
count() {
	env -i PYTHONPATH="${path:-}" PATH=/nothing "${@:2}" "$scratch/program.py" \
		>"$scratch/output" 2>"$scratch/warnings"
	grep -qxF 'requests_total{code="200",path="/x"} 1' "$scratch/output" ||
		{ cat "$scratch/output"; echo "the counter is missing"; exit 1; }
	case $1 in
	*-py3-none-any.whl) grep -q 'without its native part' "$scratch/warnings" ;;
	*) [ ! -s "$scratch/warnings" ] ;;
	esac || { cat "$scratch/warnings"; echo "these are not the expected warnings"; exit 1; }
}

# Installs a file with pip in a new environment, and counts there.
installs() {
	local home=$scratch/venv before
	python3 -m venv --clear "$home"
	before=$(date +%s%N)
	env -i PATH="${tools:-/nothing}" HOME="$scratch" "$home/bin/pip" install --quiet \
		--disable-pip-version-check --no-cache-dir "${@:2}" "$dist"/$1
	echo "installed $(basename "$dist"/$1), $(stat -c %s "$dist"/$1) bytes, in $((($(date +%s%N) - before) / 1000000)) ms"
	count "$1" "$home/bin/python"
	[ ! -e "$home/bin/quipu" ] || { echo "the wheel contains a command"; exit 1; }
	! "$home/bin/python" -c 'import quipu' 2>/dev/null || { echo "the wheel contains quipu"; exit 1; }
}

# Unpacks a wheel for an interpreter that has no pip, and counts there.
unpacks() {
	local home=$scratch/unpacked
	rm -rf "$home"
	python3 -m zipfile -e "$dist"/$1 "$home"
	path=$home count "$@"
	echo "counted with $(basename "$dist"/$1), $(stat -c %s "$dist"/$1) bytes"
}

# The file that pip chooses on a platform.
chosen() {
	python3 -m pip download --quiet --disable-pip-version-check --no-index --find-links "$dist" \
		--only-binary=:all: --platform "$1" --dest "$scratch/$1" quipu-metrics
	basename "$scratch/$1"/*
}

machine=$(uname -m)
installs "quipu_metrics-*-manylinux*_$machine.whl" --no-index
installs 'quipu_metrics-*-py3-none-any.whl' --no-index

for platform in manylinux_2_17_x86_64 manylinux_2_17_aarch64 musllinux_1_2_x86_64 \
	musllinux_1_2_aarch64 macosx_11_0_arm64 macosx_10_13_x86_64 win_amd64 win_arm64; do
	file=$(chosen "$platform")
	case $platform in
	*linux*) [[ $file == *-cp310-abi3-*"$platform"* ]] ;;
	*) [[ $file == *-py3-none-any.whl ]] ;;
	esac || { echo "on $platform, pip chooses $file"; exit 1; }
done
echo "pip chooses the right file on 8 platforms"

if [ -n "${PYTHON_AARCH64:-}" ]; then
	unpacks 'quipu_metrics-*-manylinux*_aarch64.whl' $PYTHON_AARCH64
else
	echo "NOT RUN: the wheel for aarch64 needs PYTHON_AARCH64"
fi
if [ -n "${PYTHON_MUSL:-}" ]; then
	unpacks "quipu_metrics-*-musllinux*_$machine.whl" $PYTHON_MUSL
else
	echo "NOT RUN: the wheel for musl needs PYTHON_MUSL"
fi
if [ -n "${SDIST:-}" ]; then
	tools=$PATH installs 'quipu_metrics-*.tar.gz'
else
	echo "NOT RUN: the sources are compiled with SDIST=1"
fi
