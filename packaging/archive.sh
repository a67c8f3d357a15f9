#!/usr/bin/env bash
# Packs the static program for a processor with its pages into a .tar.gz, for systems without our
# packages.
#
# usage: archive.sh PROCESSOR
source "$(dirname "$0")/lib.sh"

tree=$(tree "$1")
name=quipu-$version-$1-linux
folder=$dist/build/$1/$name
rm -rf "$folder"
mkdir -p "$folder"/{bin,etc,share/man/man1,share/completions}
cp "$tree/bin/quipu" "$folder/bin"
cp "$tree"/man/* "$folder/share/man/man1"
cp "$tree"/completions/* "$folder/share/completions"
cp "$tree/etc/quipu.toml" "$tree/systemd/quipu.service" "$folder/etc"
cp "$tree"/doc/{LICENSE-APACHE,LICENSE-MIT,third-party-licenses.txt,quipu.cdx.json} "$folder"
pack "$dist/$name.tar.gz" "$dist/build/$1" "$name"
cp "$tree/doc/quipu.cdx.json" "$dist/$name.cdx.json"
