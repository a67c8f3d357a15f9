#!/usr/bin/env python3
"""Fails for a link that leads nowhere: a relative link or an anchor in a Markdown file, a link to the
project's own files on GitHub, and a path such as `docs/formats.md` in a comment or a string. Fails
for a page in docs/ that docs/SUMMARY.md does not list, because the book would omit this page, and for
a relative link that leads out of docs/, because the book contains no other files.
"""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"

FENCE = re.compile(r"^\s*(```|~~~)")
CODE = re.compile(r"``.*?``|`[^`]*`")
LINK = re.compile(r"\[(?:[^][]|\[[^]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^]]+\]:\s+(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")
HOSTED = re.compile(r"https://github\.com/quipu-metrics/quipu/(?:blob|tree)/main/([\w./#-]*[\w/])")
# A page that a comment, a message or a help names by its path from the root.
NAMED = re.compile(r"(?<![\w/.-])(docs/[a-z0-9/-]+\.(?:md|yaml)(?:#[\w-]+)?)")


def tracked() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    # The parts of README.md in bench/reports link from the root.
    is_kept = lambda name: not name.startswith("bench/reports/") and (ROOT / name).is_file()
    return [ROOT / name for name in sorted(filter(None, names)) if is_kept(name)]


def prose(path: Path) -> list[str]:
    """The lines of a Markdown file, with empty lines in place of code blocks."""
    lines, is_code = [], False
    for line in path.read_text().splitlines():
        is_fence = bool(FENCE.match(line))
        lines.append("" if is_code or is_fence else line)
        is_code ^= is_fence
    return lines


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and mdBook compute it."""
    title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", title).replace(" ", "-")


@cache
def anchors(path: Path) -> set[str]:
    found: set[str] = set()
    for line in prose(path):
        found.update(ANCHOR.findall(line))
        if heading := HEADING.match(line):
            name, count = slug(heading[1]), 0
            while (anchor := f"{name}-{count}" if count else name) in found:
                count += 1
            found.add(anchor)
    return found


def fault(base: Path, target: str) -> str | None:
    """Why a link from the folder `base` leads nowhere; None if it is in order."""
    name, _, anchor = target.partition("#")
    path = (base / name).resolve()
    if not path.exists():
        return "no such file"
    if anchor and path.is_dir():
        path = path / "README.md"
    if anchor and path.suffix == ".md" and anchor not in anchors(path):
        return "no such heading"
    return None


def targets(path: Path) -> list[tuple[int, Path, str]]:
    """The links of a file: the line, the folder from which the target counts, and the target."""
    found: list[tuple[int, Path, str]] = []

    def add(text: str, offset: int, base: Path, target: str) -> None:
        found.append((text.count("\n", 0, offset) + 1, base, target))

    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return found
    for match in HOSTED.finditer(text):
        add(text, match.start(), ROOT, match[1])
    if path.suffix != ".md" or path.name == "CHANGELOG.md":
        for match in NAMED.finditer(text):
            add(text, match.start(), ROOT, match[1])
    if path.suffix == ".md":
        text = "\n".join(prose(path))
        text = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
        for match in [*LINK.finditer(text), *REFERENCE.finditer(text)]:
            if not re.match(r"[a-z]+:", match[1]):
                target = path.name + match[1] if match[1].startswith("#") else match[1]
                add(text, match.start(), path.parent, target)
    return found


def main() -> int:
    faults: list[str] = []
    files = tracked()
    for path in files:
        place = path.relative_to(ROOT)
        for line, base, target in targets(path):
            if why := fault(base, target):
                faults.append(f"{place}:{line}: {target}: {why}")
            elif DOCS in path.parents and base != ROOT and DOCS not in (base / target).resolve().parents:
                faults.append(f"{place}:{line}: {target}: leads out of docs: write the address on GitHub")
    listed = {(DOCS / target.partition("#")[0]).resolve() for _, _, target in targets(DOCS / "SUMMARY.md")}
    for path in files:
        if DOCS in path.parents and path.suffix == ".md" and path not in listed | {DOCS / "SUMMARY.md"}:
            faults.append(f"{path.relative_to(ROOT)}: not in docs/SUMMARY.md")
        if DOCS in path.parent.parents and path.name == "README.md":
            faults.append(f"{path.relative_to(ROOT)}: name it index.md, because the book renames README.md")
    for found in faults:
        print(found)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
