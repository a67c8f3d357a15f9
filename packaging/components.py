#!/usr/bin/env python3
"""Lists the crates that the program `quipu` is built from: as a software bill of materials (SBOM) in
CycloneDX 1.6, and as a file with their licenses, which must accompany the program.

usage: components.py TARGET VERSION SBOM LICENSES
"""

import datetime
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
LICENSE_FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def main():
    target, version, sbom, licenses = sys.argv[1:]
    crates, edges = linked_crates(target)
    bill = bill_of_materials(crates, edges, target, version)
    Path(sbom).write_text(json.dumps(bill, indent=1) + "\n")
    Path(licenses).write_text("".join(license_page(crates)))


def cargo(*arguments):
    command = [CARGO, *arguments, "--locked"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def linked_crates(target):
    """Returns the metadata of the crates that are linked into the program, and for each crate the
    crates that it uses."""
    lines = cargo(
        *("tree", "--package=quipu-cli", "--edges=normal,no-proc-macro", "--prefix=none"),
        *("--no-dedupe", f"--target={target}", "--format={p}"),
    ).splitlines()
    linked = {tuple(line.split()[:2]) for line in lines if line}
    metadata = json.loads(cargo("metadata", "--format-version=1", f"--filter-platform={target}"))
    crates = [p for p in metadata["packages"] if (p["name"], f"v{p['version']}") in linked]
    assert len(crates) == len(linked), "cargo tree and cargo metadata differ"
    crates.sort(key=lambda crate: (crate["name"], crate["version"]))
    purls = {crate["id"]: purl(crate) for crate in crates}
    edges = {
        purls[node["id"]]: sorted(purls[used] for used in node["dependencies"] if used in purls)
        for node in metadata["resolve"]["nodes"]
        if node["id"] in purls
    }
    return crates, edges


def is_ours(crate):
    return crate["source"] is None


def bill_of_materials(crates, edges, target, version):
    """Returns the SBOM. Its only time is that of the commit, because builds are reproducible."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    commit_time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
    program = f"pkg:generic/quipu@{version}"
    components = []
    for crate in crates:
        component = {
            "type": "library",
            "bom-ref": purl(crate),
            "name": crate["name"],
            "version": crate["version"],
            "licenses": [{"expression": crate["license"].replace("/", " OR ")}],
            "purl": purl(crate),
        }
        if checksum := checksums[crate["name"], crate["version"]]:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if crate["repository"]:
            component["externalReferences"] = [{"type": "vcs", "url": crate["repository"]}]
        components.append(component)
    contents = program + target + json.dumps(components)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, contents)}",
        "version": 1,
        "metadata": {
            "timestamp": commit_time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": program,
                "name": "quipu",
                "version": version,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
                "purl": program,
            },
            "properties": [{"name": "target", "value": target}],
        },
        "components": components,
        "dependencies": [
            {"ref": program, "dependsOn": [p for p in edges if p.startswith("pkg:cargo/quipu-cli@")]},
            *({"ref": crate, "dependsOn": used} for crate, used in sorted(edges.items())),
        ],
    }


def purl(crate):
    return f"pkg:cargo/{crate['name']}@{crate['version']}"


def license_page(crates):
    """Yields the license files of other projects, each with the crates that contain this file."""
    names_by_text = {}
    for crate in filter(lambda crate: not is_ours(crate), crates):
        name = f"{crate['name']} {crate['version']}: {crate['license']}"
        folder = Path(crate["manifest_path"]).parent
        # Crates with C code have more of these files further down.
        files = sorted(p for p in folder.rglob("*") if LICENSE_FILE.match(p.name) and p.is_file())
        texts = [file.read_text(errors="replace").strip() + "\n" for file in files]
        for text in texts or [f"See {crate['repository']}\n"]:
            names_by_text.setdefault(text, {})[name] = None
    yield "The program quipu contains these crates, and the C library musl (MIT).\n"
    for text, names in names_by_text.items():
        yield "\n" + "=" * 78 + "\n" + "\n".join(names) + "\n" + "-" * 78 + "\n\n" + text


if __name__ == "__main__":
    main()
