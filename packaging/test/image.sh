#!/usr/bin/env bash
# Tests the image: unpacks it by umoci, runs its command as its user in a namespace, and checks HTTPS
# with its root certificates.
source "$(dirname "$0")/lib.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
image=$dist/quipu-$version.oci.tar
url=http://127.0.0.1:8081
architecture=$(debian_architecture "$(uname -m)")

for name in $(for processor in $architectures; do debian_architecture "$processor"; done); do
	skopeo --override-arch "$name" inspect "oci-archive:$image:$version" >"$work/$name.json" ||
		fail "skopeo inspect for $name"
	grep --quiet "\"Architecture\": \"$name\"" "$work/$name.json" || fail "the image has no $name"
done

# podman names the loaded image by this annotation.
tar --extract --to-stdout --file "$image" index.json |
	grep --quiet "\"io.containerd.image.name\":\"localhost/quipu:$version\"" || fail "the name of the image"

# umoci unpacks only an index with one image.
skopeo --override-arch "$architecture" copy --quiet "oci-archive:$image:$version" "oci:$work/layout:$version"
umoci unpack --image "$work/layout:$version" "$work/bundle" 2>/dev/null
root_folder=$work/bundle/rootfs
[ "$(stat --format %u:%g:%a "$root_folder/var/lib/quipu")" = 65532:65532:700 ] || fail "owner of the state"

# Prints a field of the process that the image describes, in lines: field NAME
field() {
	python3 -c 'import json, sys
value = json.load(open(sys.argv[1]))["process"][sys.argv[2]]
print(*(value if isinstance(value, list) else [json.dumps(value)]), sep="\n")' "$work/bundle/config.json" "$1"
}
mapfile -t command < <(field args)
mapfile -t healthcheck < <(python3 - "$work/layout" <<'PYTHON'
import json, pathlib, sys
blobs = pathlib.Path(sys.argv[1]) / "blobs/sha256"
for blob in blobs.iterdir():
    if b'"Healthcheck"' in (data := blob.read_bytes()) and data.startswith(b"{"):
        print(*json.loads(data)["config"]["Healthcheck"]["Test"][1:], sep="\n")
PYTHON
)
mapfile -t environment < <(field env)
[[ $(field user) == '{"uid": 65532, "gid": 65532'* ]] || fail "the user of the image"

# PATH stays as it is, because it finds the tools of the test.
mapfile -t environment < <(printf '%s\n' "${environment[@]}" | grep --invert-match '^PATH=')
run() {
	export "${environment[@]}"
	in_root "$root_folder" 65532:65532 "$@"
}

run "${command[@]}" 2>"$work/log" &
wait_until_ready $url
push $url 5
(run "${healthcheck[@]}") >/dev/null || fail "the health check"
stop $!

# A new container with the same volume continues.
run "${command[@]}" 2>"$work/log" &
wait_until_ready $url
push $url 10
stop $!
! (run "${healthcheck[@]}") 2>/dev/null ||
	fail "the health check without a daemon"

# HTTPS works with the certificates of the image. A server with a certificate of an unknown authority is
# refused, which shows that certificates are found and checked.
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout "$work/key" \
	-addext subjectAltName=IP:127.0.0.1 -out "$work/certificate" 2>/dev/null
openssl s_server -quiet -accept 18102 -www -key "$work/key" -cert "$work/certificate" 2>/dev/null &
sleep 0.5
! (run /usr/bin/quipu get --file https://127.0.0.1:18102/ up_total) 2>"$work/log" ||
	fail "a server with an unknown certificate"
grep --quiet --ignore-case 'UnknownIssuer\|certificate' "$work/log" || fail "HTTPS: $(cat "$work/log")"
! grep --quiet 'no certificates' "$work/log" || fail "HTTPS: $(cat "$work/log")"
kill $!
echo "$image: $(stat --format %s "$image") bytes, $(stat --format %s "$root_folder/usr/bin/quipu") the program"
