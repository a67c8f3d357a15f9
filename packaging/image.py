#!/usr/bin/env python3
"""Writes a container image for several processors as an OCI archive, which `podman load` and `skopeo
copy oci-archive:...` read.

The image contains the static program, the root certificates of certifi, and licenses: no shell and no
package manager. Like this, two builds give the same bytes, and no daemon or root is needed.

usage: image.py VERSION ARCHIVE CERTIFICATES PROCESSOR=TREE ...
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
from pathlib import Path

USER = 65532
STATE = "var/lib/quipu"
PROCESSORS = {
    "x86_64": {"architecture": "amd64", "os": "linux"},
    "aarch64": {"architecture": "arm64", "os": "linux", "variant": "v8"},
}
SOURCE = "https://github.com/quipu-metrics/quipu"
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
CREATED = datetime.datetime.fromtimestamp(EPOCH, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
MEDIA = "application/vnd.oci.image."


def main():
    version, archive, certificates, *trees = sys.argv[1:]
    blobs, manifests = {}, []
    for processor, _, tree in (argument.partition("=") for argument in trees):
        layer = root_file_system(Path(tree), Path(certificates))
        config = {
            "created": CREATED,
            **PROCESSORS[processor],
            "config": settings(version),
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
            "history": [{"created": CREATED, "created_by": "packaging/image.py"}],
        }
        compressed = gzip.compress(layer, mtime=0)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MEDIA + "manifest.v1+json",
            "config": add(blobs, "config.v1+json", encode(config)),
            "layers": [add(blobs, "layer.v1.tar+gzip", compressed)],
            "annotations": annotations(version),
        }
        descriptor = add(blobs, "manifest.v1+json", encode(manifest))
        manifests.append({**descriptor, "platform": PROCESSORS[processor]})
    index = {
        "schemaVersion": 2,
        "mediaType": MEDIA + "index.v1+json",
        "manifests": manifests,
        "annotations": annotations(version),
    }
    descriptor = add(blobs, "index.v1+json", encode(index))
    # skopeo selects an image of the archive by the first name. podman and containerd give the second
    # name to the loaded image.
    names = {
        "org.opencontainers.image.ref.name": version,
        "io.containerd.image.name": f"localhost/quipu:{version}",
    }
    entry = {"schemaVersion": 2, "manifests": [{**descriptor, "annotations": names}]}
    with tarfile.open(archive, "w", format=tarfile.USTAR_FORMAT) as out:
        add_file(out, "oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
        add_file(out, "index.json", encode(entry))
        for name, blob in sorted(blobs.items()):
            add_file(out, f"blobs/sha256/{name}", blob)


def settings(version):
    return {
        "User": f"{USER}:{USER}",
        "Entrypoint": ["/usr/bin/quipu"],
        "Cmd": ["serve"],
        "WorkingDir": f"/{STATE}",
        "Env": [
            "PATH=/usr/bin",
            "QUIPU_LISTEN=0.0.0.0:8081",
            f"QUIPU_STATE=/{STATE}/state.quipu",
        ],
        "ExposedPorts": {"8081/tcp": {}},
        "Volumes": {f"/{STATE}": {}},
        "Labels": annotations(version),
        # OCI does not define this field: Docker uses it, and Kubernetes uses its own probes. A part of
        # the page suffices, because the whole can be long.
        "Healthcheck": {
            "Test": [
                *("CMD", "/usr/bin/quipu", "get", "--file"),
                *("http://127.0.0.1:8081/metrics?name[]=quipu_events_total", "quipu_events_total"),
            ],
            "Interval": 30_000_000_000,
            "Timeout": 5_000_000_000,
        },
    }


def annotations(version):
    prefix = "org.opencontainers.image."
    return {
        prefix + "title": "quipu",
        prefix + "description": "A daemon for metrics that survive a crash",
        prefix + "version": version,
        prefix + "revision": os.environ["BUILD_COMMIT"],
        prefix + "source": SOURCE,
        prefix + "licenses": "MIT OR Apache-2.0",
    }


def root_file_system(tree, certificates):
    """Returns the root file system of the image as an uncompressed tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as layer:
        for folder in ("etc", "etc/ssl", "etc/ssl/certs", "tmp", "usr", "usr/bin"):
            add_folder(layer, folder, 0o1777 if folder == "tmp" else 0o755, 0)
        for folder in ("usr/share", "usr/share/doc", "usr/share/doc/quipu", "var", "var/lib"):
            add_folder(layer, folder, 0o755, 0)
        add_folder(layer, STATE, 0o700, USER)
        user = f"root:x:0:0:root:/:/sbin/nologin\nquipu:x:{USER}:{USER}:quipu:/{STATE}:/sbin/nologin\n"
        add_file(layer, "etc/passwd", user.encode())
        add_file(layer, "etc/group", f"root:x:0:\nquipu:x:{USER}:\n".encode())
        add_file(layer, "etc/ssl/certs/ca-certificates.crt", certificates.read_bytes())
        add_file(layer, "usr/bin/quipu", (tree / "bin/quipu").read_bytes(), 0o755)
        for name in ("LICENSE-APACHE", "LICENSE-MIT", "quipu.cdx.json", "third-party-licenses.txt.gz"):
            add_file(layer, f"usr/share/doc/quipu/{name}", (tree / "doc" / name).read_bytes())
    return out.getvalue()


def add_folder(archive, name, mode, owner):
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, mode, EPOCH
    entry.uid = entry.gid = owner
    archive.addfile(entry)


def add_file(archive, name, contents, mode=0o644):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(contents), mode, EPOCH
    archive.addfile(entry, io.BytesIO(contents))


def add(blobs, media_type, blob):
    """Adds a blob under its digest, and returns its descriptor."""
    name = digest(blob)
    blobs[name.removeprefix("sha256:")] = blob
    return {"mediaType": MEDIA + media_type, "digest": name, "size": len(blob)}


def digest(blob):
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def encode(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


if __name__ == "__main__":
    main()
