#!/usr/bin/env bash
# Measures the packages of quipu and of its peers, and writes the table in docs/install.md: the bytes
# to download, the bytes on the disk, and the time of an installation from a local file in a fresh
# Debian system. Peers that Debian does not package are built from source, and have only sizes.
#
# Needs root, and packages in target/dist.
source "$(dirname "$0")/test/lib.sh"

page=$root/docs/install.md
minbase=$(debian_system minbase)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

megabytes() {
	awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1e6 }'
}

# Prints the row of a package of Debian: package_row LABEL PACKAGE [FILE]
package_row() {
	local debian=$work/$2 download before after times=() archives begin
	mkdir "$debian"
	tar --extract --file "$minbase" --directory "$debian"
	cp /etc/resolv.conf "$debian/etc/resolv.conf"
	[ -z "${3:-}" ] || cp "$3" "$debian/tmp"
	in_debian() {
		(export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin && in_root "$debian" 0:0 "$@")
	}
	# The packages of debootstrap are still there.
	in_debian apt-get clean
	in_debian apt-get update --quiet=2 >/dev/null
	local name=${3:+/tmp/$(basename "$3")}
	in_debian apt-get install --yes --quiet=2 --no-install-recommends --download-only \
		"${name:-$2}" >/dev/null 2>"$work/log" || fail "$(tail -5 "$work/log")"
	archives=$(find "$debian/var/cache/apt/archives" -name '*.deb' -printf '%s\n')
	[ -z "${3:-}" ] || archives=$(stat --format %s "$3")
	download=$(awk '{ sum += $1 } END { print sum }' <<<"$archives")
	before=$(du --summarize --bytes --exclude=proc "$debian/usr" | cut -f1)
	for _ in 1 2 3; do
		begin=$(date +%s%N)
		in_debian apt-get install --yes --quiet=2 --no-install-recommends \
			"${name:-$2}" >"$work/log" 2>&1 || fail "$(tail -5 "$work/log")"
		times+=($((($(date +%s%N) - begin) / 10000000)))
		after=$(du --summarize --bytes --exclude=proc "$debian/usr" | cut -f1)
		in_debian apt-get autoremove --purge --yes --quiet=2 "$2" >/dev/null 2>&1
	done
	mapfile -t times < <(printf '%s\n' "${times[@]}" | sort --numeric-sort)
	echo "| $1 | $(megabytes "$download") | $(megabytes $((after - before))) |" \
		"$(awk -v t="${times[1]}" 'BEGIN { printf "%.1f s", t / 100 }') |"
	rm -rf "$debian"
}

# Prints the row of a program that is built from source: program_row LABEL PROGRAM
program_row() {
	strip -o "$work/program" "$2"
	echo "| $1 | $(megabytes "$(gzip -9 <"$work/program" | wc --bytes)") as .gz |" \
		"$(megabytes "$(stat --format %s "$work/program")") | |"
}


peers=$root/target/bench-daemon
{
	echo
	echo "| package | download | on the disk | installation |"
	echo "|---|--:|--:|--:|"
	package_row "quipu-metrics $version (.deb)" quipu-metrics \
		"$dist/quipu-metrics_$version-1_$(debian_architecture "$(uname -m)").deb"
	package_row "prometheus-pushgateway (.deb of Debian)" prometheus-pushgateway
	package_row "victoria-metrics (.deb of Debian, vmagent and 7 other programs)" victoria-metrics
	program_row "quipu $version, the program" "$(tree "$(uname -m)")/bin/quipu"
	for peer in statsd_exporter pushgateway vmagent; do
		[ ! -x "$peers/$peer" ] || program_row "$peer, built by Go and stripped" "$peers/$peer"
	done
	echo
} >"$work/table"
sed -i -e "/^<!-- sizes/r $work/table" -e '/^<!-- sizes/,/^<!-- end -->/{/^<!--/!d}' "$page"
cat "$work/table"
