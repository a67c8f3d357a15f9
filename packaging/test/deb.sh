#!/usr/bin/env bash
# Tests the Debian packages: lintian, the unit, and the life of the package in a chroot: installation,
# upgrade, removal and purge.
source "$(dirname "$0")/lib.sh"

architecture=$(debian_architecture "$(uname -m)")
package=$dist/quipu-metrics_$version-1_$architecture.deb
url=http://127.0.0.1:8081
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Notes that do not apply: a section of two lines, no scripts for other init systems, and words of crates.
allowed=binary-has-unneeded-section,package-supports-alternative-init-but-no-init.d-script
allowed+=,spelling-error-in-binary

for processor in $architectures; do
	lintian --allow-root --fail-on error,warning,info --display-info --suppress-tags "$allowed" \
		"$dist/quipu-metrics_$version-1_$(debian_architecture "$processor").deb"
done

# The unit, with the program in its place.
cp "$root/packaging/systemd/quipu.service" "$work/quipu.service"
sed -i "s|/usr/bin/quipu|$(tree "$(uname -m)")/bin/quipu|" "$work/quipu.service"
systemd-analyze verify --man=no "$work/quipu.service" || fail "systemd-analyze verify"
security=$(systemd-analyze security --offline=true --threshold=20 "$work/quipu.service" | tail -1)
echo "systemd-analyze security: $security"

minbase=$(debian_system minbase)
debian=$work/debian
mkdir "$debian"
tar --extract --file "$minbase" --directory "$debian"

later_package "$work/later"
cp "$package" "$work"/later/*.deb "$debian/tmp"

in_debian() {
	(export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin && in_root "$debian" 0:0 "$@")
}
# Starts the daemon by the unit's command, as another user and in its folder.
start() {
	local command
	command=$(sed -n 's/^ExecStart=//p' "$debian/usr/lib/systemd/system/quipu.service")
	mkdir -p "$debian/var/lib/private/quipu"
	ln -sfn private/quipu "$debian/var/lib/quipu"
	chown -R 61234:61234 "$debian/var/lib/private/quipu"
	# shellcheck disable=SC2086: the command consists of words.
	(cd / && in_root "$debian" 61234:61234 $command) 2>"$work/log" &
	wait_until_ready $url
}

begin=$(date +%s%N)
in_debian dpkg --install "/tmp/$(basename "$package")" >"$work/log" || fail "install: $(cat "$work/log")"
echo "installed in $((($(date +%s%N) - begin) / 1000000)) ms"
[[ $(in_debian quipu version) == "quipu $version "* ]] || fail "quipu version"
in_debian quipu check config /etc/quipu/quipu.toml >/dev/null || fail "the default settings"
[ -L "$debian/etc/systemd/system/multi-user.target.wants/quipu.service" ] || fail "the service is not enabled"
start
push $url 5
stop $!

# The upgrade keeps the state, and a changed file of settings.
echo 'keys = 10000' >>"$debian/etc/quipu/quipu.toml"
in_debian dpkg --install "/tmp/quipu-metrics_$later_version-1_$architecture.deb" >"$work/log" 2>&1 ||
	fail "upgrade: $(cat "$work/log")"
grep --quiet '^keys' "$debian/etc/quipu/quipu.toml" || fail "the upgrade lost the settings"
start
push $url 10
stop $!

in_debian dpkg --remove quipu-metrics >"$work/log" 2>&1 || fail "remove: $(cat "$work/log")"
[ ! -e "$debian/usr/bin/quipu" ] || fail "removal left the program"
[ -e "$debian/var/lib/quipu/state.quipu" ] || fail "removal deleted the state"
[ -e "$debian/etc/quipu/quipu.toml" ] || fail "removal deleted the settings"

# A package that was removed continues after it is installed again.
in_debian dpkg --install "/tmp/$(basename "$package")" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
start
push $url 15
stop $!

in_debian dpkg --purge quipu-metrics >"$work/log" 2>&1 || fail "purge: $(cat "$work/log")"
left=$(cd "$debian" && find etc var usr lib -name '*quipu*' -not -path 'var/log/*')
[ -z "$left" ] || fail "purge left $left"
echo "$package: $(stat --format %s "$package") bytes; install, upgrade, removal and purge in Debian" \
	"$(cat "$debian/etc/debian_version")"
