#!/usr/bin/env python3
"""Lists the public API of each published crate, and compares the lists with the files of `.ci/api`.

`api.py FOLDER CRATE...` reads the JSON that `rustdoc --output-format json` wrote into the folder, and
fails if a list differs from its file. `api.py --renew FOLDER CRATE...` writes the files. `make api` and
`make api-renew` run rustdoc first.

A list contains one line for each item, with the path by which a program names the item. Fields,
variants, methods and implementations of traits have lines, too. Hidden items, blanket implementations
and the names of parameters are omitted. `Send`, `Sync` and `Unpin` have a line only if a type lacks them.
"""

import difflib
import json
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / ".ci/api"
# The versions of the JSON that this script was tested with.
FORMATS = {57}
# Names of the standard library that need no path.
PRELUDE = {
    "AsMut", "AsRef", "Box", "Clone", "Copy", "Debug", "Default", "Deref", "DerefMut", "Display",
    "DoubleEndedIterator", "Drop", "Eq", "ExactSizeIterator", "Extend", "Fn", "FnMut", "FnOnce",
    "From", "FromIterator", "FromStr", "Hash", "Into", "IntoIterator", "Iterator", "Option", "Ord",
    "PartialEq", "PartialOrd", "Result", "Send", "Sized", "String", "StructuralPartialEq", "Sync",
    "ToOwned", "ToString", "TryFrom", "TryInto", "Unpin", "UnwindSafe", "RefUnwindSafe", "Freeze",
    "Vec",
}


class Crate:
    """The items of a crate, and their lines."""

    def __init__(self, rustdoc: dict, others: dict[tuple[str, ...], str]):
        self.json = rustdoc
        self.index = rustdoc["index"]
        # The public paths of the items of all published crates, by the place of their definition.
        self.others = others
        root = self.index[str(self.json["root"])]
        self.name = root["name"]
        # The shortest public path of each item.
        self.paths: dict[str, str] = {}
        self.reexports: set[tuple[str, str]] = set()
        self.find_paths(root, self.name, set())
        for id, path in self.paths.items():
            if id in rustdoc["paths"]:
                others[tuple(rustdoc["paths"][id]["path"])] = path
        self.lines: set[str] = set()

    def list(self) -> str:
        """The lines of all items."""
        for source, name in self.reexports:
            self.lines.add(f"pub use {self.external(source) or source} as {name}")
        for id, path in self.paths.items():
            self.list_item(self.index[id], path)
        self.list_impls()
        return "".join(f"{line}\n" for line in sorted(self.lines))

    def find_paths(self, module: dict, path: str, parents: set[str]) -> None:
        """Finds the public path of each item of a module."""
        for id in map(str, kind_of(module)[1]["items"]):
            item = self.index.get(id)
            if item is None or id in parents:
                continue
            kind, inner = kind_of(item)
            if kind != "use":
                self.add_path(id, f"{path}::{item['name']}", parents)
                continue
            target = str(inner["id"]) if inner["id"] is not None else None
            name = f"{path}::{inner['name']}"
            if target not in self.index:
                self.reexports.add((target or inner["source"], f"{path}::*" if inner["is_glob"] else name))
            elif inner["is_glob"]:
                if target not in parents:
                    self.find_children(target, path, parents | {target})
            else:
                self.add_path(target, name, parents)

    def find_children(self, id: str, path: str, parents: set[str]) -> None:
        kind, inner = kind_of(self.index[id])
        if kind == "module":
            self.find_paths(self.index[id], path, parents)
        elif kind == "enum":
            for variant in map(str, inner["variants"]):
                if variant in self.index:
                    self.add_path(variant, f"{path}::{self.index[variant]['name']}", parents)

    def add_path(self, id: str, path: str, parents: set[str]) -> None:
        if kind_of(self.index[id])[0] == "module":
            self.find_paths(self.index[id], path, parents | {id})
        known = self.paths.get(id)
        if known is None or (path.count("::"), path) < (known.count("::"), known):
            self.paths[id] = path

    # Lines of items.

    def list_item(self, item: dict, path: str) -> None:
        kind, inner = kind_of(item)
        mark = "".join(f"#[{mark}] " for mark in marks(item))
        generics = self.generics(inner.get("generics")) if isinstance(inner, dict) else ""
        where = self.where(inner.get("generics")) if isinstance(inner, dict) else ""
        add = self.lines.add
        if kind == "module":
            add(f"pub mod {path}")
        elif kind == "function":
            add(f"{mark}pub {self.function(inner, path)}")
        elif kind in ("struct", "union"):
            fields = inner["kind"] if kind == "struct" else {"plain": inner}
            form = ""
            if isinstance(fields, dict) and "tuple" in fields:
                types = [self.field(id) for id in fields["tuple"]]
                form = f"({', '.join(types)})"
            elif isinstance(fields, dict):
                hidden = fields["plain"].get("has_stripped_fields")
                form = " { .. }" if hidden else " {}"
                for id in fields["plain"]["fields"]:
                    self.list_field(id, path)
            add(f"{mark}pub {kind} {path}{generics}{form}{where}")
        elif kind == "enum":
            add(f"{mark}pub enum {path}{generics}{where}")
            for id in map(str, inner["variants"]):
                if id in self.index:
                    self.list_variant(self.index[id], path)
        elif kind == "trait":
            safety = "unsafe " if inner["is_unsafe"] else ""
            bounds = self.bounds(inner["bounds"], ": ")
            add(f"{mark}pub {safety}trait {path}{generics}{bounds}{where}")
            for id in map(str, inner["items"]):
                if id in self.index:
                    self.list_member(self.index[id], path, "")
        elif kind == "type_alias":
            add(f"{mark}pub type {path}{generics} = {self.type(inner['type'])}{where}")
        elif kind == "constant":
            add(f"{mark}pub const {path}: {self.type(inner['type'])}")
        elif kind == "static":
            mutable = "mut " if inner["is_mutable"] else ""
            add(f"{mark}pub static {mutable}{path}: {self.type(inner['type'])}")
        elif kind == "macro":
            add(f"{mark}pub macro {path}!")
        elif kind == "proc_macro":
            helpers = ", ".join(inner["helpers"])
            add(f"pub {inner['kind']} macro {path} ({helpers})")
        elif kind == "variant":
            self.list_variant(item, path.rsplit("::", 1)[0])
        else:
            add(f"{mark}pub {kind} {path}")

    def list_variant(self, item: dict, path: str) -> None:
        kind = kind_of(item)[1]["kind"]
        path = f"{path}::{item['name']}"
        mark = "".join(f"#[{mark}] " for mark in marks(item))
        if kind == "plain":
            form = ""
        elif "tuple" in kind:
            form = f"({', '.join(self.field(id) for id in kind['tuple'])})"
        else:
            form = " { .. }" if kind["struct"]["has_stripped_fields"] else " {}"
            for id in kind["struct"]["fields"]:
                self.list_field(id, path)
        self.lines.add(f"{mark}{path}{form}")

    def list_field(self, id: int, path: str) -> None:
        field = self.index.get(str(id))
        if field is not None:
            kind = self.type(kind_of(field)[1])
            self.lines.add(f"{path}::{field['name']}: {kind}")

    def field(self, id: int | None) -> str:
        """A field of a tuple; `_` if it is private."""
        field = self.index.get(str(id))
        return "_" if field is None else self.type(kind_of(field)[1])

    def list_member(self, item: dict, path: str, visibility: str) -> None:
        """A method, a type or a constant of a trait or a type."""
        kind, inner = kind_of(item)
        name = f"{path}::{item['name']}"
        mark = "".join(f"#[{mark}] " for mark in marks(item))
        if kind == "function":
            provided = " { .. }" if not visibility and inner["has_body"] else ""
            line = self.function(inner, name) + provided
        elif kind == "assoc_const":
            line = f"const {name}: {self.type(inner['type'])}"
        else:
            value = f" = {self.type(inner['type'])}" if inner["type"] else ""
            line = f"type {name}{self.generics(inner['generics'])}"
            line += self.bounds(inner["bounds"], ": ") + value
        self.lines.add(f"{mark}{visibility}{line}")

    def list_impls(self) -> None:
        for item in self.index.values():
            kind, inner = kind_of(item)
            if kind != "impl" or inner["blanket_impl"] is not None:
                continue
            if inner["is_synthetic"] and not inner["is_negative"]:
                continue
            for_ = self.type(inner["for"])
            generics, where = self.generics(inner["generics"]), self.where(inner["generics"])
            members = [self.index[str(id)] for id in inner["items"] if str(id) in self.index]
            if inner["trait"] is None:
                owner = inner["for"].get("resolved_path")
                if owner is None or str(owner["id"]) not in self.paths:
                    continue
                # Arguments matter if the implementation is only for some of them.
                plain = self.paths[str(owner["id"])]
                path = for_ if needs_arguments(owner) else plain
                bound = f" (impl{generics} {for_}{where})" if where or bounded(inner) else ""
                for member in members:
                    before = set(self.lines)
                    self.list_member(member, path, "pub ")
                    if bound:
                        for line in self.lines - before:
                            self.lines.remove(line)
                            self.lines.add(line + bound)
                continue
            trait = self.path(inner["trait"])
            if trait in ("StructuralPartialEq", "Freeze", "RefUnwindSafe", "UnwindSafe"):
                continue
            sign = "!" if inner["is_negative"] else ""
            unsafe = "unsafe " if inner["is_unsafe"] else ""
            if not self.is_public(inner["for"]) or not self.is_public({"resolved_path": inner["trait"]}):
                continue
            line = f"{unsafe}impl{generics} {sign}{trait} for {for_}{where}"
            types = [member for member in members if "assoc_type" in member["inner"]]
            values = [f"{t['name']} = {self.type(kind_of(t)[1]['type'])}" for t in types]
            self.lines.add(line + (f" {{ {', '.join(sorted(values))} }}" if values else ""))

    def is_public(self, kind: dict) -> bool:
        """Whether a program can name the type or the trait."""
        path = kind.get("resolved_path")
        if path is None:
            inner = kind.get("borrowed_ref")
            return inner is None or self.is_public(inner["type"])
        id = str(path["id"])
        known = self.json["paths"].get(id)
        return id in self.paths or known is not None and known["crate_id"] != 0

    # Signatures and types.

    def function(self, inner: dict, path: str) -> str:
        header, sig = inner["header"], inner["sig"]
        words = [w for w in ("const", "async", "unsafe") if header[f"is_{w}"]]
        abi = header["abi"]
        if abi != "Rust":
            words.append(f'extern "{abi if isinstance(abi, str) else next(iter(abi))}"')
        inputs = []
        for name, kind in sig["inputs"]:
            inputs.append(self.receiver(kind) if name == "self" else self.type(kind))
        output = f" -> {self.type(sig['output'])}" if sig["output"] else ""
        head = " ".join([*words, "fn"])
        generics, where = self.generics(inner["generics"]), self.where(inner["generics"])
        return f"{head} {path}{generics}({', '.join(inputs)}){output}{where}"

    def receiver(self, kind: dict) -> str:
        if kind == {"generic": "Self"}:
            return "self"
        borrowed = kind.get("borrowed_ref")
        if borrowed and borrowed["type"] == {"generic": "Self"}:
            lifetime = f"{borrowed['lifetime']} " if borrowed["lifetime"] else ""
            return f"&{lifetime}{'mut ' if borrowed['is_mutable'] else ''}self"
        return f"self: {self.type(kind)}"

    def type(self, kind: dict | str | None) -> str:
        if kind is None or isinstance(kind, str):
            return "_" if kind in (None, "infer") else kind
        name, inner = next(iter(kind.items()))
        if name == "resolved_path":
            return self.path(inner)
        if name in ("generic", "primitive"):
            return "!" if inner == "never" else inner
        if name == "dyn_trait":
            traits = [self.poly_trait(bound) for bound in inner["traits"]]
            return "dyn " + " + ".join(traits + ([inner["lifetime"]] if inner["lifetime"] else []))
        if name == "impl_trait":
            return "impl " + self.bounds(inner)
        if name == "tuple":
            types = [self.type(one) for one in inner]
            return f"({', '.join(types)}{',' if len(types) == 1 else ''})"
        if name == "slice":
            return f"[{self.type(inner)}]"
        if name == "array":
            return f"[{self.type(inner['type'])}; {inner['len']}]"
        if name == "borrowed_ref":
            lifetime = f"{inner['lifetime']} " if inner["lifetime"] else ""
            target = self.type(inner["type"])
            if " + " in target and target.startswith(("dyn", "impl")):
                target = f"({target})"
            return f"&{lifetime}{'mut ' if inner['is_mutable'] else ''}{target}"
        if name == "raw_pointer":
            return f"*{'mut' if inner['is_mutable'] else 'const'} {self.type(inner['type'])}"
        if name == "function_pointer":
            inputs = ", ".join(self.type(kind) for _, kind in inner["sig"]["inputs"])
            output = f" -> {self.type(inner['sig']['output'])}" if inner["sig"]["output"] else ""
            return f"{self.higher_ranked(inner['generic_params'])}fn({inputs}){output}"
        if name == "qualified_path":
            owner = self.type(inner["self_type"])
            if inner["trait"] and (inner["trait"]["path"] or owner != "Self"):
                owner = f"<{owner} as {self.path(inner['trait'])}>"
            return f"{owner}::{inner['name']}{self.arguments(inner['args'])}"
        return f"{name} {json.dumps(inner)}"

    def path(self, path: dict) -> str:
        id = str(path["id"])
        name = self.paths.get(id) or self.external(id) or path["path"]
        return name + self.arguments(path["args"])

    def external(self, id: str) -> str | None:
        known = self.json["paths"].get(id)
        if known is None:
            return None
        path = known["path"]
        if path[-1] in PRELUDE and path[0] in ("alloc", "core", "std"):
            return path[-1]
        return self.others.get(tuple(path)) or "::".join(path)

    def arguments(self, args: dict | None) -> str:
        if args is None:
            return ""
        name, inner = next(iter(args.items()))
        if name == "parenthesized":
            output = f" -> {self.type(inner['output'])}" if inner["output"] else ""
            return f"({', '.join(self.type(kind) for kind in inner['inputs'])}){output}"
        if name != "angle_bracketed":
            return "(..)"
        texts = []
        for arg in inner["args"]:
            kind, value = next(iter(arg.items())) if isinstance(arg, dict) else (arg, None)
            texts.append(
                value if kind == "lifetime" else
                self.type(value) if kind == "type" else
                value["expr"] if kind == "const" else "_"
            )
        for constraint in inner["constraints"]:
            kind, value = next(iter(constraint["binding"].items()))
            name = constraint["name"] + self.arguments(constraint["args"])
            if kind == "constraint":
                texts.append(name + self.bounds(value, ": "))
            else:
                texts.append(f"{name} = {self.term(value)}")
        return f"<{', '.join(texts)}>" if texts else ""

    def term(self, term: dict) -> str:
        return self.type(term["type"]) if "type" in term else term["constant"]["expr"]

    def bounds(self, bounds: list, before: str = "") -> str:
        texts = []
        for bound in bounds:
            kind, inner = next(iter(bound.items()))
            if kind == "trait_bound":
                sign = {"none": "", "maybe": "?"}.get(inner["modifier"], "~const ")
                texts.append(sign + self.poly_trait(inner))
            elif kind == "outlives":
                texts.append(inner)
            elif kind == "use":
                names = [next(iter(one.values())) if isinstance(one, dict) else one for one in inner]
                texts.append(f"use<{', '.join(names)}>")
        return before + " + ".join(texts) if texts else ""

    def poly_trait(self, bound: dict) -> str:
        return self.higher_ranked(bound["generic_params"]) + self.path(bound["trait"])

    def higher_ranked(self, params: list) -> str:
        return f"for<{', '.join(param['name'] for param in params)}> " if params else ""

    def generics(self, generics: dict | None) -> str:
        texts = []
        for param in (generics or {}).get("params", []):
            kind, inner = next(iter(param["kind"].items()))
            if kind == "lifetime":
                outlives = f": {' + '.join(inner['outlives'])}" if inner["outlives"] else ""
                texts.append(param["name"] + outlives)
            elif kind == "const":
                default = f" = {inner['default']}" if inner["default"] else ""
                texts.append(f"const {param['name']}: {self.type(inner['type'])}{default}")
            elif not inner["is_synthetic"]:
                default = f" = {self.type(inner['default'])}" if inner["default"] else ""
                texts.append(param["name"] + self.bounds(inner["bounds"], ": ") + default)
        return f"<{', '.join(texts)}>" if texts else ""

    def where(self, generics: dict | None) -> str:
        texts = []
        for predicate in (generics or {}).get("where_predicates", []):
            kind, inner = next(iter(predicate.items()))
            if kind == "bound_predicate":
                ranked = self.higher_ranked(inner["generic_params"])
                texts.append(ranked + self.type(inner["type"]) + self.bounds(inner["bounds"], ": "))
            elif kind == "lifetime_predicate":
                texts.append(f"{inner['lifetime']}: {' + '.join(inner['outlives'])}")
            else:
                texts.append(f"{self.type(inner['lhs'])} = {self.term(inner['rhs'])}")
        return f" where {', '.join(texts)}" if texts else ""


def kind_of(item: dict) -> tuple[str, dict]:
    return next(iter(item["inner"].items()))


def marks(item: dict) -> list[str]:
    """The attributes that are part of the API."""
    names = [mark if isinstance(mark, str) else next(iter(mark)) for mark in item["attrs"]]
    return [name for name in ("non_exhaustive", "must_use") if name in names] + (
        ["deprecated"] if item["deprecation"] else []
    )


def needs_arguments(path: dict) -> bool:
    """Whether an implementation is for a type with concrete arguments, such as `Family<Counter>`."""
    inner = (path["args"] or {}).get("angle_bracketed", {"args": []})
    types = [arg["type"] for arg in inner["args"] if isinstance(arg, dict) and "type" in arg]
    return any("generic" not in kind for kind in types)


def bounded(inner: dict) -> bool:
    """Whether an implementation has bounds on its parameters."""
    params = inner["generics"]["params"]
    return any(param["kind"].get("type", {}).get("bounds") for param in params)


def library(package: str) -> str:
    """The name of a package's library, which is the name in Rust code and of its JSON."""
    for path in ROOT.glob("crates/*/Cargo.toml"):
        manifest = tomllib.loads(path.read_text())
        if manifest["package"]["name"] == package:
            return manifest.get("lib", {}).get("name", package.replace("-", "_"))
    sys.exit(f"no folder of crates contains the package {package}")


def main() -> int:
    renew = sys.argv[1:2] == ["--renew"]
    folder, *names = sys.argv[2:] if renew else sys.argv[1:]
    documents = {}
    for name in names:
        documents[name] = json.loads((Path(folder) / f"{library(name)}.json").read_text())
        version = documents[name]["format_version"]
        if version not in FORMATS:
            print(f"NOT RUN: .ci/api.py, which does not know version {version} of rustdoc's JSON: "
                  "compare the lists by hand, and add the version to FORMATS")
            return 0
    others: dict[tuple[str, ...], str] = {}
    crates = {name: Crate(document, others) for name, document in documents.items()}
    has_changed = False
    for name, crate in crates.items():
        path = LISTS / f"{name}.txt"
        old, new = path.read_text() if path.exists() else "", crate.list()
        if renew:
            LISTS.mkdir(exist_ok=True)
            path.write_text(new)
        elif old != new:
            has_changed = True
            print(f"The public API of {name} differs from {path.relative_to(ROOT)}:")
            lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0))
            print("\n".join(line for line in lines[2:] if not line.startswith("@@")))
    if has_changed:
        print("If you mean this change, run `make api-renew`, and commit .ci/api with the change.")
    return int(has_changed)


if __name__ == "__main__":
    sys.exit(main())
