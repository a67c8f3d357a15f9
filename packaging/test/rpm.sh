#!/usr/bin/env bash
# Tests the RPM packages: their contents, their settings, and installation and removal in a folder.
# Scripts and dependencies of a Red Hat system are not tested, because they need its packages.
source "$(dirname "$0")/lib.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A signature needs a key, the changes are in CHANGELOG.md, rpmlint does not know static programs, and
# nfpm marks no patterns as documentation.
allowed='no-signature|no-changelogname-tag|no-binary|not-listed-as-documentation'

for processor in $architectures; do
	package=$dist/quipu-metrics-$version-1.$processor.rpm
	rpm --checksig --nosignature "$package" >/dev/null || fail "$package: checksums"
	[ "$(rpm --query --configfiles --nosignature --package "$package")" = /etc/quipu/quipu.toml ] ||
		fail "$package: files of settings"
	errors=$(rpmlint "$package" 2>/dev/null | grep ': E: ' | grep -Ev "E: ($allowed)( |$)" || true)
	[ -z "$errors" ] || fail "$package: $errors"
	echo "$package: $(stat --format %s "$package") bytes"
done

package=$dist/quipu-metrics-$version-1.$(uname -m).rpm
options=(--root "$work/system" --nosignature --nodeps --noscripts)
mkdir "$work/system"
rpm "${options[@]}" --install "$package" 2>/dev/null
[[ $("$work/system/usr/bin/quipu" version) == "quipu $version "* ]] || fail "quipu version"
"$work/system/usr/bin/quipu" check config "$work/system/etc/quipu/quipu.toml" >/dev/null || fail "the settings"
echo 'keys = 10000' >>"$work/system/etc/quipu/quipu.toml"
rpm "${options[@]}" --erase quipu-metrics 2>/dev/null
[ ! -e "$work/system/usr/bin/quipu" ] || fail "removal left the program"
[ -e "$work/system/etc/quipu/quipu.toml.rpmsave" ] || fail "removal deleted changed settings"
