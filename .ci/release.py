#!/usr/bin/env python3
"""Keeps the versions of all packages in step, and writes the notes of a release.

`release.py check` fails if a file names another version than `Cargo.toml`, or if the changelog or the
samples of the version's files are missing. `release.py set VERSION` writes a version into all files,
and into the lock files by cargo. `release.py dated` fails if the changelog gives the version no date.
`release.py notes FOLDER` writes `NOTES.md` for the files in the folder: the changes of the version, and
a table of the files.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
SAMPLES = ROOT / "crates/cli/tests/releases"

# Each file with a version, and the pattern of the text before it, where ^ is the start of a line.
PLACES = [
    ("Cargo.toml", r'^version = "'),
    ("Cargo.toml", r'^quipu.* version = "=?'),
    ("bindings/python/Cargo.toml", r'^version = "'),
    ("bindings/ruby/ext/quipu/Cargo.toml", r'^version = "'),
    ("bindings/ruby/lib/quipu/version.rb", r'VERSION = "'),
    ("bindings/python/python/quipu_metrics/_pure.py", r'^__version__ = "'),
    ("docs/openapi.yaml", r"^  version: "),
    ("packaging/helm/quipu/Chart.yaml", r"^version: "),
    ("packaging/helm/quipu/Chart.yaml", r'^appVersion: "'),
    ("packaging/kubernetes/quipu.yaml", r'app\.kubernetes\.io/version: "'),
    ("packaging/kubernetes/quipu.yaml", r'image: "quipu:'),
    # The names of packages in examples.
    ("docs/install.md", r"\bquipu(?:-metrics|-chart)?[-_:]"),
    ("README.md", r"\bquipu-metrics-"),
    ("bindings/ruby/README.md", r"\bquipu-metrics-"),
    ("bindings/python/pure_wheel.py", r"\bquipu_metrics-"),
]
# Versions have no suffix such as -rc.1, because Python and Ruby write it in other ways.
NUMBER = r"\d+\.\d+\.\d+"
# Each workspace with a lock file that contains the versions of our packages.
WORKSPACES = [".", "fuzz", "bindings/python", "bindings/ruby/ext/quipu"]


def current() -> str:
    """The version of the workspace."""
    text = (ROOT / "Cargo.toml").read_text()
    return re.search(rf'(?m)^version = "({NUMBER})"', text)[1]


def check() -> int:
    """Prints each file that is not ready for a release of this version."""
    version = current()
    faults = []
    for name, before in PLACES:
        found = re.findall(rf"{before}({NUMBER})", (ROOT / name).read_text(), re.MULTILINE)
        if not found:
            faults.append(f"{name} contains no version: correct PLACES in .ci/release.py")
        for other in set(found) - {version}:
            faults.append(f"{name} names {other}, and Cargo.toml {version}: run .ci/release.py set VERSION")
    if not section(version):
        faults.append(f"CHANGELOG.md lacks the section '## [{version}]'")
    if not (SAMPLES / version).is_dir():
        faults.append(f"{SAMPLES.relative_to(ROOT)}/{version} is missing: see crates/cli/tests/daemon/releases.rs")
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


def section(version: str) -> str:
    """The text of a version in the changelog; empty if there is none."""
    found = re.search(rf"(?ms)^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", CHANGELOG.read_text())
    return found[1].strip() if found else ""


def set_version(version: str) -> int:
    """Writes a version into all files, and into the lock files, because all builds use `--locked`."""
    if not re.fullmatch(NUMBER, version):
        sys.exit(f"{version} is not a version such as 0.2.0: use three numbers, without a suffix")
    for name, before in PLACES:
        path = ROOT / name
        pattern = re.compile(rf"({before}){NUMBER}", re.MULTILINE)
        path.write_text(pattern.sub(rf"\g<1>{version}", path.read_text()))
    for workspace in WORKSPACES:
        command = [os.environ.get("CARGO", "cargo"), "update", "--workspace", "--offline", "--quiet"]
        subprocess.run(command, cwd=ROOT / workspace, check=True)
    return check()


def dated() -> int:
    """Prints whether the section of the version needs a date."""
    if re.search(rf"(?m)^## \[{re.escape(current())}\] - \d{{4}}-\d\d-\d\d$", CHANGELOG.read_text()):
        return 0
    print(f"CHANGELOG.md: write the date of the release: ## [{current()}] - YYYY-MM-DD")
    return 1


def notes(folder: Path) -> int:
    """Writes the changes of the version with a table of the files."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name != "NOTES.md"]
    rows = [f"| `{path.name}` | {path.stat().st_size / 2**20:.2f} |\n" for path in files]
    (folder / "NOTES.md").write_text(
        f"# quipu {current()}\n\n{section(current())}\n\n## Files\n\n"
        "`sha256sum --check --ignore-missing SHA256SUMS` checks the files that you downloaded.\n\n"
        "| file | MiB |\n|---|--:|\n" + "".join(rows)
    )
    print(f"{folder}: {len(files)} files, and NOTES.md")
    return 0 if files else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["check"]:
            sys.exit(check())
        case ["set", version]:
            sys.exit(set_version(version))
        case ["dated"]:
            sys.exit(dated())
        case ["notes", folder]:
            sys.exit(notes(Path(folder)))
    sys.exit(__doc__)
