#!/usr/bin/env python3
"""Finds the phrases of `TICS` in comments, documentation and texts, and fails for each one that
`.ci/words-meant.txt` does not list. In Rust, it also finds comments of more than 100 columns.

Each tic has a plain word that reads better; a use that is really meant is listed with some of the
words around it, one use a line. `words.py PATH...` shows only what lies below those paths.
"""

import re
import subprocess
import sys
from pathlib import Path

# The phrase, and what to write instead.
TICS = {
    r"whoever": "the thread, process or caller that",
    r"who(?! is\b)": "the thread, process or caller that",
    r"whom": "the thread, process or caller that",
    r"anew": "again",
    r"behind": "after",
    r"answers": "returns, or responses",
    r"so many": "as many as needed, or the number of",
    r"as many": "the same number of",
    r"(?<!there )is no(?! longer\b)": "no X is, or is not a",
    r"nobody": "no process, no thread, no one",
    r"somebody": "a process, a thread, another",
    r"nought": "zero",
    r"lies? in wait": "waits",
}
PATTERN = re.compile(r"\b(?:" + "|".join(TICS) + r")\b", re.IGNORECASE)
ROOT = Path(__file__).resolve().parent.parent
MEANT = ROOT / ".ci/words-meant.txt"

# Where comments begin, by suffix, and what is text from the first to the last line.
SLASHES = {".rs", ".go", ".java", ".js", ".c", ".h", ".proto"}
HASHES = {".py", ".pyi", ".rb", ".toml", ".sh", ".yml", ".mk", ""}
WHOLE = {".md", ".txt", ".html"}
COMMENT = re.compile(r"\s*//[/!]? ?(.*)")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"?')


def prose(path: Path, line: str) -> str:
    """The comment and the string literals of a line of code, or all of a line of text."""
    if path.suffix in WHOLE:
        return line
    mark = "//" if path.suffix in SLASHES else "#"
    texts = STRING.findall(line)
    code = STRING.sub('""', line)
    if mark in code:
        texts.append(code[code.index(mark):])
    elif path.suffix in HASHES or not re.search(r"[;{}()=]", code):
        # A line of a text over several lines, such as a docstring.
        texts.append(code)
    return " ".join(texts)


def wide(lines: list[str]) -> list[int]:
    """The numbers of the lines with a comment alone that could be wrapped: not in code or a table."""
    found, is_code = [], False
    for number, line in enumerate(lines, 1):
        comment = COMMENT.match(line)
        text = comment[1] if comment else ""
        is_code = bool(comment) and is_code != text.startswith("```")
        is_kept = is_code or text.startswith(("|", "    ")) or " " not in text[: 100 - len(line)]
        if comment and len(line) > 100 and not is_kept:
            found.append(number)
    return found


def main() -> int:
    listed = [line for line in MEANT.read_text().splitlines() if line and not line.startswith("#")]
    meant = re.compile("|".join(re.escape(line) for line in listed) or r"(?!)", re.IGNORECASE)
    unused = set(listed)
    paths = sys.argv[1:]
    names = subprocess.run(
        ["git", "ls-files", "-z", "--", *paths], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    found, too_wide = 0, 0
    for name in filter(None, names):
        path = ROOT / name
        known = path.suffix in SLASHES | HASHES | WHOLE
        is_licence = path.name.startswith("LICENSE")
        if not known or is_licence or name.startswith((".ci/", "fuzz/corpus/", "docs/benchmarks/")):
            continue
        try:
            lines = path.read_text().splitlines()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        for number in wide(lines) if path.suffix == ".rs" else ():
            too_wide += 1
            print(f"{name}:{number}: a comment of {len(lines[number - 1])} columns: wrap it at 100")
        for number, line in enumerate(lines, 1):
            text = prose(path, line)
            if not PATTERN.search(text):
                continue
            unused -= {one for one in listed if one.lower() in text.lower()}
            for tic in PATTERN.finditer(meant.sub("", text)):
                found += 1
                print(f"{name}:{number}: '{tic.group()}' in: {line.strip()}")
    if not paths:
        for line in sorted(unused):
            found += 1
            print(f"{MEANT.relative_to(ROOT)}: '{line}' is nowhere: remove it")
    if found:
        print(f"{found} phrases to replace:", file=sys.stderr)
        for tic, better in TICS.items():
            print(f"  {tic}: {better}", file=sys.stderr)
        print("List a use that is really meant in .ci/words-meant.txt.", file=sys.stderr)
    return int(found + too_wide > 0)


if __name__ == "__main__":
    sys.exit(main())
