"""The original small benchmarks, in Python: a dict, a key as a string, a file lock."""

import fcntl
import json
import os
import platform
import threading
import urllib.parse

import measure

LABELS = {"code": "200", "path": "/some/path", "method": "GET"}
SUBJECT = f"Python {platform.python_version()}"


def raw_hash(_options):
    def time(name, text, **needed):
        measure.code(f"raw hash/{name}", SUBJECT, text, **needed)

    lock = threading.Lock()
    keys = [f"key{number}" for number in range(1000)]
    table = dict.fromkeys([*keys, "key", ("200", "/some/path", "GET")], 0)
    needed = {"table": table, "lock": lock}
    time("the loop alone", "pass")
    time("constant key", "table['key'] += 1", table=table)
    time("constant key, with Mutex", "with lock: table['key'] += 1", **needed)
    time("1,000 keys", "table[keys[i % 1000]] += 1", table=table, keys=keys)
    time("1,000 keys, with Mutex", "with lock: table[keys[i % 1000]] += 1", keys=keys, **needed)
    # The compiler would make a tuple of constants only once.
    key = "table[(status, '/some/path', 'GET')] += 1"
    time("Array keys", key, table=table, status="200")
    time("Array keys, with Mutex", f"with lock: {key}", status="200", **needed)


def keys(_options):
    codes = {
        "to_json": "json.dumps(l)",
        "query string": "'&'.join([f'{k}={v}' for k, v in l.items()])",
        "query string, escaped": "'&'.join([f'{k}={quote(v)}' for k, v in l.items()])",
        "values joined": "'-|-'.join(l.values())",
        "to_s": "str(l)",
    }
    for name, code in codes.items():
        measure.code(
            f"key/{name}", SUBJECT, code, l=LABELS, json=json, quote=urllib.parse.quote_plus
        )


def system_calls(options):
    for place in ("tmpfs", "disk"):
        with open(os.path.join(options.folder(place), "lock"), "w") as file:
            code = "flock(f, EX); flock(f, UN)"
            measure.code(
                f"system call/flock and unlock, {place}", SUBJECT, code,
                flock=fcntl.flock, f=file, EX=fcntl.LOCK_EX, UN=fcntl.LOCK_UN,
            )
    measure.code("system call/getpid", SUBJECT, "getpid()", getpid=os.getpid)
