#!/usr/bin/env bash
# Tests the archives: the program runs in an empty root file system, and for other processors in an
# emulator.
source "$(dirname "$0")/lib.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
url=http://127.0.0.1:18101

for processor in $architectures; do
	archive=$dist/quipu-$version-$processor-linux.tar.gz
	tar --extract --file "$archive" --directory "$work"
	folder=$work/quipu-$version-$processor-linux
	[ "$processor" = "$(uname -m)" ] && emulator=() || emulator=("qemu-$processor-static")
	[[ $("${emulator[@]}" "$folder/bin/quipu" version) == "quipu $version "* ]] ||
		fail "$archive: quipu version"
	! grep --quiet --text --fixed-strings "$HOME/" "$folder/bin/quipu" ||
		fail "$archive: the program contains a path of this machine"
	"${emulator[@]}" "$folder/bin/quipu" serve --listen "${url#http://}" --state "$work/$processor" \
		2>"$work/log" &
	wait_until_ready $url
	push $url 5
	stop $!
	echo "$archive: $(stat --format %s "$archive") bytes"
done

# Nothing else is in this root file system.
empty=$work/empty
mkdir "$empty"
cp "$work/quipu-$version-$(uname -m)-linux/bin/quipu" "$empty"
[[ $(chroot "$empty" /quipu version) == "quipu $version "* ]] || fail "quipu version in an empty root"
chroot "$empty" /quipu serve --listen "${url#http://}" --state /state.quipu 2>"$work/log" &
wait_until_ready $url
push $url 5
stop $!
# Without certificates, a request by HTTPS fails with the remedy.
! chroot "$empty" /quipu get --file https://127.0.0.1:1/metrics up_total 2>"$work/log" ||
	fail "HTTPS without certificates"
grep --quiet SSL_CERT_FILE "$work/log" || fail "HTTPS without certificates: $(cat "$work/log")"
echo "an empty root file system: version, push, scrape"
