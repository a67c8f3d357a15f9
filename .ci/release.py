#!/usr/bin/env python3
"""Keeps the versions of all packages in step, and writes the notes of a release.

`release.py check` fails if a file names another version than `Cargo.toml`, or if the changelog or the
samples of the version's files are missing. `release.py set VERSION` writes a version into all files.
`release.py dated` fails if the changelog gives the version no date. `release.py notes FOLDER` writes
`NOTES.md` for the files in the folder: the changes of the version, and a table of the files.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
SAMPLES = ROOT / "crates/cli/tests/releases"

# Each file with a version, and the text before it.
PLACES = [
    ("Cargo.toml", r'(?m)^version = "'),
    ("Cargo.toml", r'(?m)^quipu.* version = "=?'),
    ("bindings/python/Cargo.toml", r'(?m)^version = "'),
    ("bindings/ruby/ext/quipu/Cargo.toml", r'(?m)^version = "'),
    ("bindings/ruby/lib/quipu/version.rb", r'VERSION = "'),
    ("docs/openapi.yaml", r"(?m)^  version: "),
]
NUMBER = r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?"


def current() -> str:
    """The version of the workspace."""
    text = (ROOT / "Cargo.toml").read_text()
    return re.search(rf'(?m)^version = "({NUMBER})"', text)[1]


def check() -> int:
    """Prints each file that is not ready for a release of this version."""
    version = current()
    faults = []
    for name, before in PLACES:
        found = re.findall(rf"{before}({NUMBER})", (ROOT / name).read_text())
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
    """Writes a version into all files. The lock files follow with the next build."""
    if not re.fullmatch(NUMBER, version):
        sys.exit(f"{version} is not a version such as 0.2.0 or 0.2.0-rc.1")
    for name, before in PLACES:
        path = ROOT / name
        path.write_text(re.sub(rf"({before}){NUMBER}", rf"\g<1>{version}", path.read_text()))
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
