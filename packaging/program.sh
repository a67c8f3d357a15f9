#!/usr/bin/env bash
# Builds the static program for a processor, such as aarch64, and prints its path.
#
# musl makes the program independent of the system's libraries. zig compiles the C code of ring and
# zstd, and LLD links, so each machine can build for each processor.
#
# usage: program.sh PROCESSOR
source "$(dirname "$0")/lib.sh"

triple=$1-unknown-linux-musl
name=${triple//-/_}
zig=$tools/zig-$1

# cc gives the compiler a target in Rust's spelling, which zig does not know.
cat >"$zig" <<SCRIPT
#!/bin/bash
arguments=()
for argument; do
	[[ \$argument == --target=* ]] || arguments+=("\$argument")
done
exec "$tools/python/bin/python3" -m ziglang cc -target $1-linux-musl -fno-sanitize=undefined \\
	"-ffile-prefix-map=$root=." "-ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=cargo" "\${arguments[@]}"
SCRIPT
printf '#!/bin/sh\nexec "%s" -m ziglang ar "$@"\n' "$tools/python/bin/python3" >"$tools/zig-ar"
chmod +x "$zig" "$tools/zig-ar"

# Paths of this machine do not belong in the program. A path in OUT_DIR is below the target folder.
flags=(
	-C linker=rust-lld -C linker-flavor=ld.lld -C link-self-contained=yes
	"--remap-path-prefix=$root=."
	"--remap-path-prefix=$target=target"
	"--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
)
cd "$root"
env "CC_$name=$zig" "AR_$name=$tools/zig-ar" "ZIG_GLOBAL_CACHE_DIR=$tools/zig-cache" \
	"ZIG_LOCAL_CACHE_DIR=$tools/zig-cache" CARGO_ENCODED_RUSTFLAGS="$(IFS=$'\x1f' && echo "${flags[*]}")" \
	"$cargo" build --locked --profile dist --package quipu-cli --bin quipu \
	--target "$triple" >&2
echo "$target/$triple/dist/quipu"
