#!/usr/bin/env python3
"""Copies the published crates into a folder, as a workspace without tests and benchmarks.

`published.py FOLDER CRATE...` is for a check with the oldest versions of all dependencies. The tests, and
crates that are not published, must not raise these versions.
"""

import re
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(folder: Path, names: list[str]) -> None:
    """Writes the copy. Replaces the crates of an earlier copy, and keeps its built files."""
    shutil.rmtree(folder / "crates", ignore_errors=True)
    members = []
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        if tomllib.loads(manifest.read_text())["package"]["name"] in names:
            members.append(manifest.parent.relative_to(ROOT))
    for member in members:
        ignored = shutil.ignore_patterns("tests", "benches", "examples")
        shutil.copytree(ROOT / member, folder / member, ignore=ignored)
        manifest = folder / member / "Cargo.toml"
        manifest.write_text(library(manifest.read_text()))
    workspace = (ROOT / "Cargo.toml").read_text()
    list = ", ".join(f'"{member}"' for member in members)
    for key in ["members", "default-members"]:
        workspace = re.sub(rf"(?ms)^{key} = \[.*?^\]", f"{key} = [{list}]", workspace)
    (folder / "Cargo.toml").write_text(workspace)


def library(manifest: str) -> str:
    """A manifest without the sections of its tests, benchmarks and examples."""
    sections = re.split(r"(?m)^(?=\[)", manifest)
    dropped = re.compile(r"\[(.*\.)?dev-dependencies|\[\[(test|bench|example)\]\]")
    return "".join(section for section in sections if not dropped.match(section))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
