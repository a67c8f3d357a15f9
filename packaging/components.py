#!/usr/bin/env python3
"""Lists the components that the program `quipu` is built from: its crates, Rust's standard library and the
C library musl. The output is a software bill of materials (SBOM) in CycloneDX 1.6, and a file with the
licenses, which must accompany the program.

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
RUSTC = os.environ.get("RUSTC", "rustc")
LICENSE_FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def main():
    target, version, sbom, licenses = sys.argv[1:]
    crates, edges = linked_crates(target)
    runtime = Runtime(target)
    bill = bill_of_materials(crates, edges, runtime, target, version)
    Path(sbom).write_text(json.dumps(bill, indent=1) + "\n")
    Path(licenses).write_text("".join(license_page(crates, runtime)))


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


class Runtime:
    """The libraries that the compiler adds to the program."""

    STD_REPOSITORY = "https://github.com/rust-lang/rust"
    STD_NOTICE = """Rust's standard library is used under the Apache License, Version 2.0, like quipu.
Copyright: The Rust Project Developers (see https://thanks.rust-lang.org)
It contains tables of Unicode (Unicode-3.0), and LLVM's libunwind (Apache-2.0 WITH LLVM-exception).
The file share/doc/rust/COPYRIGHT-library.html of this version of Rust contains all notices.
"""

    def __init__(self, target):
        self.rust_version = compiler("-vV").partition("release: ")[2].split()[0]
        libraries = Path(compiler("--print=sysroot").strip(), "lib/rustlib", target, "lib/self-contained")
        # The library contains its version as a separate string.
        found = re.search(rb"\0(\d\.\d+\.\d+)\0", (libraries / "libc.a").read_bytes())
        self.musl_version = found[1].decode()
        self.std = f"pkg:generic/rust-std@{self.rust_version}"
        self.musl = f"pkg:generic/musl@{self.musl_version}"

    def components(self):
        """Returns the entries of the SBOM."""
        return [
            component(self.std, "rust-std", self.rust_version, "MIT OR Apache-2.0", self.STD_REPOSITORY),
            component(self.musl, "musl", self.musl_version, "MIT", "https://git.musl-libc.org/cgit/musl"),
        ]

    def licenses(self):
        """Returns the text of each license with the name of its component."""
        musl = (ROOT / "packaging/LICENSE-musl").read_text()
        return [
            (f"rust-std {self.rust_version}: MIT OR Apache-2.0", self.STD_NOTICE),
            (f"musl {self.musl_version}: MIT", musl),
        ]


def compiler(*arguments):
    return subprocess.run([RUSTC, *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def is_ours(crate):
    return crate["source"] is None


def component(reference, name, version, licenses, repository):
    """Returns an entry of the SBOM."""
    entry = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "licenses": [{"expression": licenses}],
        "purl": reference,
    }
    if repository:
        entry["externalReferences"] = [{"type": "vcs", "url": repository}]
    return entry


def bill_of_materials(crates, edges, runtime, target, version):
    """Returns the SBOM. Its only time is that of the commit, because builds are reproducible."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    commit_time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.UTC)
    program = f"pkg:generic/quipu@{version}"
    command = next(reference for reference in edges if reference.startswith("pkg:cargo/quipu-cli@"))
    components = []
    for crate in crates:
        licenses = crate["license"].replace("/", " OR ")
        entry = component(purl(crate), crate["name"], crate["version"], licenses, crate["repository"])
        if checksum := checksums[crate["name"], crate["version"]]:
            entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(entry)
    components += runtime.components()
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
            {"ref": program, "dependsOn": [command, runtime.std]},
            *({"ref": crate, "dependsOn": used} for crate, used in sorted(edges.items())),
            {"ref": runtime.std, "dependsOn": [runtime.musl]},
            {"ref": runtime.musl, "dependsOn": []},
        ],
    }


def purl(crate):
    return f"pkg:cargo/{crate['name']}@{crate['version']}"


def license_page(crates, runtime):
    """Yields the license files of other projects, each with the components that contain this file."""
    names_by_text = {}
    for crate in filter(lambda crate: not is_ours(crate), crates):
        name = f"{crate['name']} {crate['version']}: {crate['license']}"
        folder = Path(crate["manifest_path"]).parent
        # Crates with C code have more of these files further down.
        files = sorted(p for p in folder.rglob("*") if LICENSE_FILE.match(p.name) and p.is_file())
        texts = [file.read_text(errors="replace").strip() + "\n" for file in files]
        for text in texts or [f"See {crate['repository']}\n"]:
            names_by_text.setdefault(text, {})[name] = None
    for name, text in runtime.licenses():
        names_by_text.setdefault(text, {})[name] = None
    yield "The program quipu contains these crates, Rust's standard library, and the C library musl.\n"
    for text, names in names_by_text.items():
        yield "\n" + "=" * 78 + "\n" + "\n".join(names) + "\n" + "-" * 78 + "\n\n" + text


if __name__ == "__main__":
    main()
