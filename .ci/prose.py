#!/usr/bin/env python3
"""Measures how hard comments and pages are to read, and fails for a folder that exceeds a bound.

`TICS` are constructions that make a reader search or guess, with their highest rate per 10,000
words in redb, jiff, ripgrep and vector, rounded up. `WANTED` are words whose absence marks prose
without reasons or without a reader, with their lowest useful rate. A folder of fewer than 800
words has no rate, and a single use of a construction never counts, because it can be the best
sentence. Quoted code (`...`) and code blocks are not prose.

usage: prose.py [--quote NAME] [PATH ...]

With `--quote`, prints the lines that contain the construction. `--rates` prints every rate.
"""

import argparse
import ast
import collections
import math
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# name: (pattern, highest rate per 10,000 words, what to write instead)
TICS = {
    "what clause": (
        r"\b[Ww]hat (?!is |are |happens|if |do |does |to |kind|you |we )\w+",
        8,
        "the noun: the response, the labels",
    ),
    "What ...": (r"(?:^|[.:] )What ", 3, "start with the noun"),
    "that of": (r"\b(?:that|those) of\b", 1, "repeat the noun"),
    "are those": (r"\b(?:are those|is that (?:of|which))\b", 1, "repeat the noun"),
    "the one that": (r"\bthe ones? (?:that|which|of|with)\b", 1, "repeat the noun"),
    "One that ...": (
        r"(?:^|[.:;] )(?:One|Those|Such) (?:that|which|of|with|who|in|is|are)\b",
        1,
        "name the thing: A series that ...",
    ),
    "of which": (r"\b(?:by|in|of|for|with|to|from) which\b", 6, "two sentences, or where"),
    "nothing": (
        r"\b(?:[Nn]othing|[Nn]obody|[Nn]owhere|[Ww]hoever|[Ss]omebody)\b",
        10,
        "does not ..., no other thread",
    ),
    "comes": (r"\b(?:comes?|came|coming)\b", 5, "arrives, is received, follows"),
    "says": (r"\b(?:says?|said|saying|tells?|told)\b", 4, "documents, reports, specifies"),
    ", so that": (r", so that\b", 10, "because, or a sentence about the effect"),
    "alone": (r"\balone\b", 3, "only"),
    "of its own": (r"\bof (?:its|their|our|his) own\b", 1, "separate, or its own X"),
    "beside": (r"\b[Bb]eside\b", 1, "next to"),
    "left out": (r"\bleft out\b", 1, "omitted"),
    "goes on": (r"\b(?:go|goes|went|going) on\b", 1, "continues"),
    "meanwhile": (r"\b[Mm]eanwhile\b", 1, "in the meantime"),
    "trailing it": (r"\b(?:of|for|in|with|by|to|at) (?:it|them)[.;]", 2, "name the thing"),
    "as X does": (
        r"\bas (?:it|they|the \w+|\w+) (?:does|do|did|was|were|is|has)\b",
        2,
        "like X",
    ),
    # Prometheus' text format has this name.
    "text": (r"\b[Tt]exts?\b(?! formats?\b)", 9, "string, message, body"),
    "has": (r"\b(?:has|have|had)\b", 50, "contains, holds, stores, uses"),
}

# name: (pattern, lowest rate per 10,000 words)
WANTED = {
    "because": (r"\b[Bb]ecause\b", 8),
    "this": (r"\b[Tt]his\b", 60),
    "can": (r"\bcan(?:not|'t)?\b", 30),
    "you, we": (r"\b(?:[Yy]ou|[Yy]our|[Ww]e|[Oo]ur)\b", 15),
    "for example": (r"\b(?:e\.g\.|[Ff]or example|such as)", 6),
}

COMMENT = {
    ".rs": r"^\s*//[/!]?\s?(.*)|[^:\"']//\s(.*)$",
    ".go": r"^\s*//\s?(.*)",
    ".py": r"^\s*#\s(.*)",
    ".pyi": r"^\s*#\s(.*)",
    ".rb": r"^\s*#\s(.*)",
    ".sh": r"^\s*#\s(.*)",
    ".mk": r"^\s*#\s(.*)",
}
COMMENT = {suffix: re.compile(pattern) for suffix, pattern in COMMENT.items()}
# Generated pages, other people's words, the lists of this check, and a page of short entries.
SKIPPED = re.compile(r"docs/benchmarks/|CHANGELOG|LICENSE|vectors|^\.ci/")
ENOUGH = 800


def prose(path: Path) -> list[str]:
    """The lines of prose of a file: its comments, or its Markdown without code."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return []
    lines, is_code = [], False
    if path.suffix == ".py":
        lines += [line for docstring in docstrings(text) for line in docstring.splitlines()]
    for line in text.splitlines():
        if path.suffix != ".md":
            comment = COMMENT[path.suffix].search(line)
            if not comment:
                continue
            line = next((group for group in comment.groups() if group is not None), "")
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        elif not is_code:
            lines.append(line)
    # Quoted code, targets of links, and placeholders of generated pages are not prose.
    lines = re.sub(r"\{\{.*?\}\}", " ", "\n".join(lines), flags=re.DOTALL).splitlines()
    return [re.sub(r"`[^`]*`|\]\([^)]*\)", " ", line) for line in lines]


def docstrings(text: str) -> list[str]:
    """The docstrings of a module, its classes and functions."""
    try:
        nodes = ast.walk(ast.parse(text))
    except SyntaxError:
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented)]


def folders(name: str) -> list[str]:
    """The folders whose rates a file belongs to: its crate or binding, and a part of the crate."""
    parts = name.split("/")
    if parts[0] == "crates":
        return ["/".join(parts[:2]), "/".join(parts[:4])]
    if parts[0] == "docs":
        return ["docs", "/".join(parts[:2])] if len(parts) > 2 else ["docs"]
    return ["/".join(parts[:2])]


def rates(lines: list[str]) -> tuple[int, dict[str, int]]:
    """The number of words, and the number of uses of each construction."""
    body = "\n".join(lines)
    words = len(re.findall(r"[A-Za-z']+", body))
    patterns = {name: row[0] for name, row in (TICS | WANTED).items()}
    return words, {
        name: len(re.findall(pattern, body, re.MULTILINE)) for name, pattern in patterns.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--quote", metavar="NAME", choices=[*TICS, *WANTED])
    parser.add_argument("--rates", action="store_true")
    options = parser.parse_args()
    names = subprocess.run(
        ["git", "ls-files", "-z", "--", *options.paths],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")

    lines_by_folder = collections.defaultdict(list)
    for name in names:
        path = ROOT / name
        if not (path.suffix in COMMENT or path.suffix == ".md") or SKIPPED.search(name):
            continue
        lines = prose(path)
        if options.quote:
            pattern = re.compile((TICS | WANTED)[options.quote][0])
            for line in filter(pattern.search, lines):
                print(f"{name}: {line.strip()}")
        for folder in dict.fromkeys(folders(name)):
            lines_by_folder[folder] += lines
    if options.quote:
        return 0

    exceeded = 0
    for folder, lines in sorted(lines_by_folder.items()):
        words, counts = rates(lines)
        if words < ENOUGH:
            continue
        for name, (_, bound, better) in TICS.items():
            rate = counts[name] * 10_000 / words
            if options.rates:
                print(f"{folder}: {name}: {rate:.1f}, at most {bound}")
            if counts[name] > max(1, math.ceil(bound * words / 10_000)):
                exceeded += 1
                print(f"{folder}: '{name}' {counts[name]} times, {rate:.0f} per 10,000 words, at "
                      f"most {bound}: write {better}")
        # Only a whole crate or page addresses its reader: a folder of internals need not.
        if folder.count("/") > 1:
            continue
        for name, (_, bound) in WANTED.items():
            rate = counts[name] * 10_000 / words
            if rate < bound:
                exceeded += 1
                print(f"{folder}: '{name}' {counts[name]} times, {rate:.0f} per 10,000 words, at "
                      f"least {bound}")
    if exceeded:
        print(f"{exceeded} bounds are exceeded. `prose.py --quote NAME PATH` prints the lines.",
              file=sys.stderr)
    return int(exceeded > 0)


if __name__ == "__main__":
    sys.exit(main())
