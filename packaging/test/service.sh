#!/usr/bin/env bash
# Tests the service of the Debian package under a real systemd, which systemd-nspawn boots in a folder:
# the unit's restrictions, a restart after a kill, an upgrade, removal and purge.
source "$(dirname "$0")/lib.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
debian=$work/debian
mkdir "$debian"
tar --extract --directory "$debian" --file "$(debian_system systemd systemd,systemd-sysv,dbus,curl)"
later_package "$work/later"
mkdir "$debian/packages" "$debian/packages/later"
cp "$dist/quipu-metrics_$version-1_$(debian_architecture "$(uname -m)").deb" "$debian/packages"
cp "$work"/later/*.deb "$debian/packages/later"

# The steps, which run inside.
cat >"$debian/steps.sh" <<'STEPS'
set -euo pipefail
fail() {
	echo "FAILED: $*" >&2
	journalctl --no-pager --unit quipu >&2
	exit 1
}
ready() {
	for _ in $(seq 100); do
		! curl --silent --fail --output /dev/null http://127.0.0.1:8081/-/ready || return 0
		sleep 0.1
	done
	fail "not ready: $1"
}
push() {
	ready "$1"
	printf '# TYPE packaged_total counter\npackaged_total 5\n' |
		curl --silent --fail --data-binary @- 'http://127.0.0.1:8081/metrics/job/test?mode=add'
	page=$(curl --silent --fail http://127.0.0.1:8081/metrics)
	grep --quiet "^packaged_total{.*} $2\$" <<<"$page" || fail "packaged_total is not $2: $1"
}
dpkg --install /packages/*.deb
push "an installation" 5
[ "$(stat --format %a /var/lib/private/quipu)" = 700 ] || fail "others can list the state"
pid=$(systemctl show --property MainPID --value quipu)
[ "$(stat --format %u "/proc/$pid")" -ge 61184 ] || fail "the user is not a dynamic one"
[ "$(awk '/^CapEff/ { print $2 }' "/proc/$pid/status")" = 0000000000000000 ] || fail "capabilities"
systemctl kill --signal KILL quipu
sleep 1
push "a kill" 10
dpkg --install /packages/later/*.deb
push "an upgrade" 15
dpkg --remove quipu-metrics
! systemctl is-active --quiet quipu || fail "the service runs after removal"
dpkg --install /packages/*.deb
push "another installation" 20
systemctl disable --now quipu 2>/dev/null
dpkg --install /packages/later/*.deb
! systemctl is-active --quiet quipu || fail "an upgrade starts a disabled service"
dpkg --purge quipu-metrics
left=$(find /etc /var/lib /usr -name '*quipu*')
[ -z "$left" ] || fail "purge left $left"
STEPS

systemd-nspawn --quiet --directory "$debian" --register=no --keep-unit --private-network --boot \
	>"$work/boot" 2>&1 &
nspawn=$!
trap 'kill "$nspawn" 2>/dev/null; wait "$nspawn"; rm -rf "$work"' EXIT
is_booted() {
	leader=$(pgrep --parent "$nspawn") &&
		[[ $(nsenter --target "$leader" --all systemctl is-system-running 2>&1) =~ running|degraded ]]
}
for _ in $(seq 100); do
	! is_booted || break
	sleep 0.3
done
is_booted || fail "systemd: $(tail "$work/boot")"
nsenter --target "$leader" --all bash /steps.sh >"$work/log" || fail "$(cat "$work/log")"
echo "the service under $(nsenter --target "$leader" --all systemctl --version | head -1)"
