# Functions of the tests in this folder, which source this file.

source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# The version of the packages that the tests of upgrades install, such as 0.1.1~test after 0.1.0.
later_version=${version%.*}.$((${version##*.} + 1))~test

fail() {
	echo "FAILED: $*" >&2
	exit 1
}

# Waits until a daemon is ready: wait_until_ready URL
wait_until_ready() {
	for _ in $(seq 100); do
		! curl --silent --fail --output /dev/null "$1/-/ready" || return 0
		sleep 0.1
	done
	fail "the daemon at $1 is not ready"
}

# Pushes to a counter, and expects its total on the page: push URL TOTAL
push() {
	printf '# TYPE packaged_total counter\npackaged_total 5\n' |
		curl --silent --show-error --fail --data-binary @- "$1/metrics/job/test?mode=add" >/dev/null
	expect_total "$@"
}

# Expects the total of the counter on the page: expect_total URL TOTAL
expect_total() {
	local page
	page=$(curl --silent --show-error --fail "$1/metrics")
	grep --quiet "^packaged_total{instance=\"\",job=\"test\"} $2\$" <<<"$page" ||
		fail "packaged_total is not $2: $(grep '^packaged' <<<"$page")"
}

# Stops a process of this test, and waits for its end.
stop() {
	kill "$1"
	wait "$1" || fail "the daemon ended with $?"
}

# Becomes a command in a root file system, with /proc and /dev/null. Call this function in a subshell:
# in_root DIR USER COMMAND...
in_root() {
	mkdir -p "$1/proc" "$1/dev"
	[ -e "$1/dev/null" ] || touch "$1/dev/null"
	exec unshare --mount --propagation private bash -c '
		mount -t proc proc "$1/proc" && mount --bind /dev/null "$1/dev/null" &&
			exec chroot --userspec="$2" "$1" "${@:3}"' - "$@"
}

# Prints the path of an archive with a Debian system that contains more packages, and creates it at first
# because a download takes minutes: debian_system NAME [PACKAGE,PACKAGE...]
debian_system() {
	local archive=$root/target/test-packages/$1.tar folder
	if [ ! -e "$archive" ]; then
		folder=$(mktemp -d)
		mkdir -p "$(dirname "$archive")"
		debootstrap --variant=minbase ${2:+--include="$2"} stable "$folder" >"$folder.log" 2>&1 ||
			fail "debootstrap: $(tail "$folder.log")"
		chmod 755 "$folder"
		tar --create --file "$archive.new" --directory "$folder" . && mv "$archive.new" "$archive"
		rm -rf "$folder" "$folder.log"
	fi
	echo "$archive"
}

# Writes a Debian package with a later version of the same program: later_package DIR
later_package() {
	local folder=$1/build/$(uname -m)
	mkdir -p "$folder"
	ln -s "$(tree "$(uname -m)")" "$folder/tree"
	PACKAGE_VERSION=$later_version DIST=$1 "$root/packaging/packages.sh" "$(uname -m)"
}
