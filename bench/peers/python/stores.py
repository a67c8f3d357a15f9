"""Takes one turn of a Python contender at a workload of the benchmark `stores`; prints records.

    python stores.py --workload increments --contender multi-process --tmpfs DIR --disk DIR
"""

import argparse
import os
import tempfile

import measure
import raw
import workloads
from contenders import ALL


class Options(argparse.Namespace):
    def folder(self, place):
        """An empty folder in a place, or None for memory."""
        root = {"tmpfs": self.tmpfs, "disk": self.disk}.get(place)
        return root and tempfile.mkdtemp(prefix="python-", dir=root)

    def named_folder(self, place, name):
        folder = os.path.join({"tmpfs": self.tmpfs, "disk": self.disk}[place], name)
        os.makedirs(folder)
        return folder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", required=True)
    parser.add_argument("--contender", required=True)
    parser.add_argument("--tmpfs", required=True)
    parser.add_argument("--disk", required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(namespace=Options())
    measure.quick = options.quick
    if options.contender == "raw":
        getattr(raw, options.workload)(options)
    else:
        getattr(workloads, options.workload)(ALL[options.contender], options)


if __name__ == "__main__":
    main()
