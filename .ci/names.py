#!/usr/bin/env python3
"""Fails for two public types of one name in the files of a crate, for a type whose name is a bare
participle, and for a function `of`; names the places.

Alternatives of one type for several systems are in one file, so they are no duplicates. Tests in
folders of their own are not read.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TYPE = re.compile(r"\s*(pub(?:\([^)]*\))? )?(?:unsafe )?(?:struct|enum|trait|union|type) (\w+)")
OF = re.compile(r"\s*(?:pub(?:\([^)]*\))? )?(?:const )?(?:unsafe )?fn of\b")
# Participles are a word each; these end like one, and are not, or each crate may have one.
PARTICIPLE = re.compile(
    r"[A-Z][a-z]+(?:ed|own)|Seen|Taken|Given|Held|Kept|Sent|Found|Made|Put|Written|Learnt|Lost"
    r"|Coming|Taking|Growing|Adding|Waiting|Sending|Writing|Pushing|Settling|Flattening|Changing|Exposing|Collecting"
)
NOUNS = {"Feed", "Seed", "Speed", "Need", "Down", "Shared", "Sealed"}
COMMON = {"Error", "Options", "Metrics"}


def find() -> dict[str, list[str]]:
    """The faults by their keys, such as `wire Sample`, each with its places."""
    faults: dict[str, list[str]] = defaultdict(list)
    for crate in sorted((ROOT / "crates").iterdir()):
        public: dict[str, list[str]] = defaultdict(list)
        for file in sorted(crate.glob("src/**/*.rs")):
            for number, line in enumerate(file.read_text().splitlines(), 1):
                place = f"{file.relative_to(ROOT)}:{number}"
                if OF.match(line):
                    faults[f"{crate.name} {file.relative_to(crate / 'src')} of"].append(place)
                if not (match := TYPE.match(line)):
                    continue
                is_public, name = match.groups()
                if PARTICIPLE.fullmatch(name) and name not in NOUNS:
                    faults[f"{crate.name} {name}"].append(place)
                elif is_public and name not in COMMON:
                    public[name].append(place)
        for name, places in public.items():
            if len({place.split(":")[0] for place in places}) > 1:
                faults[f"{crate.name} {name}"] += places
    return faults


def main() -> None:
    faults = find()
    for key in sorted(faults):
        print(f"{', '.join(faults[key])}: choose another name than {key.split()[-1]}")
    sys.exit(bool(faults))


main()
