#!/usr/bin/env bash
# Fills the folder with the files of the packages for a processor: the program, its man pages and
# completions, licenses, and the list of its components.
#
# usage: tree.sh PROCESSOR
source "$(dirname "$0")/lib.sh"

tree=$(tree "$1")
program=$("$root/packaging/program.sh" "$1")
# The pages are the same for all processors, so the program of this machine can write them.
native=$program
[ "$1" = "$(uname -m)" ] || native=$("$root/packaging/program.sh" "$(uname -m)")

rm -rf "$tree"
mkdir -p "$tree"/{bin,man,completions,systemd,etc,doc}
cp "$program" "$tree/bin/quipu"
"$native" man "$tree/man"
gzip --no-name -9 "$tree"/man/*
"$native" completions bash >"$tree/completions/quipu"
"$native" completions zsh >"$tree/completions/_quipu"
"$native" completions fish >"$tree/completions/quipu.fish"
cp "$root/packaging/systemd/quipu.service" "$tree/systemd"
cp "$root/packaging/etc/quipu.toml" "$tree/etc"
cp "$root"/LICENSE-* "$tree/doc"
# Debian wants the license in this file, too. Its lines start with a space, and empty lines are a dot.
sed '1,4d; s/^$/./; s/^/ /' "$root/LICENSE-MIT" | cat "$root/packaging/debian/copyright" - \
	>"$tree/doc/copyright"
python3 "$root/packaging/components.py" "$1-unknown-linux-musl" "$version" \
	"$tree/doc/quipu.cdx.json" "$tree/doc/third-party-licenses.txt"
gzip --no-name -9 --keep "$tree/doc/third-party-licenses.txt"
cat <<CHANGELOG | gzip --no-name -9 >"$tree/doc/changelog.Debian.gz"
quipu-metrics ($version-1) unstable; urgency=medium

  * Version $version. The changes are in
    https://github.com/quipu-metrics/quipu/blob/main/CHANGELOG.md.

 -- The quipu contributors <$maintainer>  $(date --rfc-email --date "@$SOURCE_DATE_EPOCH")
CHANGELOG
gzip --no-name -9 <"$root/CHANGELOG.md" >"$tree/doc/changelog.gz"
find "$tree" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
