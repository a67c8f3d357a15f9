"""Writes the wheel for platforms other than Linux: the same package without its native part.

    python pure_wheel.py dist/quipu_metrics-0.1.0-cp310-abi3-manylinux...whl dist

The metadata are copied from the given wheel, because pip expects the same in all wheels.
"""

import base64
import hashlib
import pathlib
import re
import sys
import zipfile


def main(native, directory):
    name, version = native.name.split("-")[:2]
    info = f"{name}-{version}.dist-info"
    pure = directory / f"{name}-{version}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(native) as source, zipfile.ZipFile(
        pure, "w", zipfile.ZIP_DEFLATED, compresslevel=9
    ) as target:

        def write(entry, data):
            # The time of the source, so that the same sources make the same wheel.
            copy = zipfile.ZipInfo(entry.filename, entry.date_time)
            copy.compress_type, copy.external_attr = zipfile.ZIP_DEFLATED, entry.external_attr
            target.writestr(copy, data)

        for entry in source.infolist():
            data = source.read(entry)
            path = pathlib.PurePosixPath(entry.filename)
            # The list of the crates in the native part is omitted as well.
            if path.suffix == ".so" or "sboms" in path.parts or path.name == "RECORD":
                continue
            if path.name == "WHEEL":
                text = re.sub(r"(?m)^Tag: .*\n", "", data.decode())
                text = text.replace("Root-Is-Purelib: false", "Root-Is-Purelib: true")
                data = f"{text.rstrip()}\nTag: py3-none-any\n".encode()
            write(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{entry.filename},sha256={digest},{len(data)}\n")
        record.append(f"{info}/RECORD,,\n")
        write(source.getinfo(f"{info}/RECORD"), "".join(record))
    print(pure)


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
