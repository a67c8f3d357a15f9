#!/usr/bin/env python3
"""Compares the imports of the workspace with the layers of `layers.txt`, and fails for each import
that points the wrong way, or from one layer to another that it must not know.

An arrow is a pair of files: one names a module or an item of the other, in a `use` or in a path.
Tests are not read. `layers.txt` describes its own lines.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Iterator

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ROOT / "layers.txt"

# Comments, strings, characters and lifetimes; or else a word, or a sign that matters to paths.
TOKEN = re.compile(
    r"""//[^\n]*|/\*(?s:.*?)\*/|b?r(?P<hashes>\#*)"(?s:.*?)"(?P=hashes)|[bc]?"(?s:[^"\\]|\\.)*"
        |b?'(?:[^'\\]|\\[^u]|\\u\{[^}]*\}|\\x..)'|'\w+
        |(?P<token>[A-Za-z_]\w*|::|[][(){},;#*<])""",
    re.VERBOSE,
)
TEST = re.compile(r"cfg\s*\(.*\btest\b")


class Layer:
    """The folders and files of a layer, and the layers that it may use."""

    def __init__(self, name: str, uses: set[str]):
        self.name = name
        self.uses = uses
        self.places: list[Path] = []


def read_layers() -> dict[str, Layer]:
    """The layers of `layers.txt` by name."""
    layers: dict[str, Layer] = {}
    for number, line in enumerate(LAYERS.read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if line[0].isspace():
            last.places += [ROOT / words[0] / word for word in words[1:]]
        elif words[1:2] == ["->"] or len(words) == 1:
            for name in words[2:]:
                if name not in layers:
                    sys.exit(f"{LAYERS.name}:{number}: {name} is no layer further up in the file")
            last = layers[words[0]] = Layer(words[0], set(words[2:]))
        else:
            sys.exit(f"{LAYERS.name}:{number}: expected 'LAYER -> LAYERS': {line}")
    for layer in layers.values():
        layer.places = layer.places or [ROOT / "crates" / layer.name]
        for place in layer.places:
            if not place.exists() and not place.with_suffix(".rs").exists():
                sys.exit(f"{LAYERS.name}: {layer.name}: {place.relative_to(ROOT)} does not exist")
    return layers


def tokens(text: str) -> list[tuple[str, int]]:
    """The words and signs of a Rust file that matter to paths, with their positions."""
    return [(match["token"], match.start()) for match in TOKEN.finditer(text) if match["token"]]


def end_of_item(words: list[tuple[str, int]], at: int) -> int:
    """The end of the item that begins at `at`: after its `;`, `,` or block, or before the `}` or `)`
    around it."""
    depth = 0
    while at < len(words):
        word = words[at][0]
        if word in "([{":
            depth += 1
        elif word in ")]}":
            if depth == 0:
                return at
            depth -= 1
            if depth == 0 and word == "}":
                return at + 1
        elif word in ";," and depth == 0:
            return at + 1
        at += 1
    return at


def without_tests(words: list[tuple[str, int]]) -> tuple[list[tuple[str, int]], set[str]]:
    """The words without items that only tests have, and the names of modules in files among those."""
    kept, modules, at = [], set(), 0
    while at < len(words):
        if [word for word, _ in words[at : at + 2]] != ["#", "["]:
            kept.append(words[at])
            at += 1
            continue
        end, depth = at + 2, 1
        while depth:
            depth += {"[": 1, "]": -1}.get(words[end][0], 0)
            end += 1
        attribute = " ".join(word for word, _ in words[at:end])
        at = end
        if TEST.search(attribute) and "not ( test" not in attribute:
            end = end_of_item(words, at)
            item = [word for word, _ in words[at:end]]
            if "mod" in item and item[-1] == ";":
                modules.add(item[item.index("mod") + 1])
            at = end
    return kept, modules


class Crate:
    """The files of a crate by the paths of their modules, such as `("http", "body")`."""

    def __init__(self, folder: Path):
        self.folder = folder
        manifest = tomllib.loads((folder / "Cargo.toml").read_text())
        name = manifest["package"]["name"].replace("-", "_")
        self.name = manifest.get("lib", {}).get("name", name)
        source = folder / "src"
        self.files = {}
        for file in source.rglob("*.rs"):
            path = file.relative_to(source).with_suffix("").parts
            self.files[path[:-1] if path[-1] in ("mod", "lib") else path] = file
        self.files.setdefault((), source / "main.rs")

    def find(self, path: list[str]) -> Path:
        """The file of the deepest module on a path."""
        length = len(path)
        while tuple(path[:length]) not in self.files:
            length -= 1
        return self.files[tuple(path[:length])]


def parse_tree(words: list[tuple[str, int]], at: int, before: list[str]) -> tuple[list[list[str]], int]:
    """The paths of a tree such as `a::{b, c::d}`, and the position after it."""
    path = list(before)
    while at < len(words):
        word = words[at][0]
        if word == "{":
            paths, at = [], at + 1
            while words[at][0] != "}":
                inner, at = parse_tree(words, at, path)
                paths += inner
                while words[at][0] not in (",", "}"):
                    at += 1
                if words[at][0] == ",":
                    at += 1
            return paths, at + 1
        if not (word[0].isalnum() or word[0] in "_*"):
            break
        path.append(word)
        at += 1
        if at >= len(words) or words[at][0] != "::":
            break
        at += 1
    return [path], at


def paths_of(words: list[tuple[str, int]], module: list[str]) -> Iterator[tuple[list[str], int]]:
    """All paths of a file, with their positions. Those from `self` and `super` begin with `crate`
    instead. `module` is the path of the file."""
    inline, depth = [], 0
    before = ""
    at = 0
    while at < len(words):
        word, position = words[at]
        following = words[at + 1][0] if at + 1 < len(words) else ""
        if word == "{":
            depth += 1
        elif word == "}":
            depth -= 1
            if inline and inline[-1][1] == depth:
                inline.pop()
        elif word == "mod" and at + 2 < len(words) and words[at + 2][0] == "{":
            inline.append((following, depth))
        begins = before == "use" or (following == "::" and before != "::")
        if begins and (word == "::" or word == "{" or re.match(r"[A-Za-z_]", word)):
            if word == "::":
                at += 1
            if word == "{" and before == "use":
                depth -= 1
            here = module + [name for name, _ in inline]
            paths, end = parse_tree(words, at, [])
            for path in paths:
                if path[:1] == ["self"]:
                    path = ["crate"] + here + path[1:]
                above = 0
                while path[above : above + 1] == ["super"]:
                    above += 1
                if above:
                    path = ["crate"] + here[: len(here) - above] + path[above:]
                yield path, position
            before, at = words[end - 1][0], end
            continue
        before, at = word, at + 1


def arrows(crates: list[Crate]) -> Iterator[tuple[Path, int, Path]]:
    """All pairs of files of which the first names the second, with the position of the name."""
    by_name = {crate.name: crate for crate in crates}
    for crate in crates:
        read, of_tests = {}, set()
        for module, file in sorted(crate.files.items()):
            words, modules = without_tests(tokens(file.read_text()))
            read[module] = words
            here = () if file.name == "main.rs" else module
            of_tests |= {here + (name,) for name in modules}
        for module, words in read.items():
            if any(module[: len(test)] == test for test in of_tests):
                continue
            file = crate.files[module]
            here = [] if file.name == "main.rs" else list(module)
            for path, position in paths_of(words, here):
                if path[:1] == ["crate"]:
                    yield file, position, crate.find(path[1:])
                # A module of the same crate hides another crate of the same name.
                elif path and path[0] in by_name and (path[0],) not in crate.files:
                    yield file, position, by_name[path[0]].find(path[1:])


def layer_of_file(file: Path, layers: dict[str, Layer]) -> Layer:
    for layer in layers.values():
        for place in layer.places:
            if place in file.parents or place == file.with_suffix(""):
                return layer
    sys.exit(f"{file.relative_to(ROOT)} belongs to no layer: add it to {LAYERS.name}")


def main() -> int:
    layers = read_layers()
    crates = [Crate(toml.parent) for toml in sorted(ROOT.glob("crates/*/Cargo.toml"))]
    layer_of = {
        file: layer_of_file(file, layers) for crate in crates for file in crate.files.values()
    }
    found: dict[tuple[Path, Path], int] = {}
    for user, position, used in arrows(crates):
        upper, lower = layer_of[user], layer_of[used]
        if upper is not lower and lower.name not in upper.uses:
            found.setdefault((user, used), position)
    for (user, used), position in sorted(found.items()):
        line = user.read_text().count("\n", 0, position) + 1
        pair = f"{layer_of[user].name} -> {layer_of[used].name}"
        print(f"{user.relative_to(ROOT)}:{line} uses {used.relative_to(ROOT)}: {pair}")
    if found:
        print(f"{len(found)} imports violate {LAYERS.name}", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
