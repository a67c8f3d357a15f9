"""Compares the daemon's Pushgateway API with a real Pushgateway.

    judge.py PUSHGATEWAY QUIPU PUSHER

starts the first two programs, sends each the same requests, runs the third one against each, which
pushes with client_golang, and compares the status codes, what `/metrics`
shows of the groups after each request, and at the end the JSON of `/api/v1/metrics`. Numbers are
compared as numbers; the times of pushes only by whether they are zero. docs/daemon/in/pushgateway.md lists
the intended differences, which the requests avoid.
"""

import base64
import gzip
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

TEXT = {"Content-Type": "text/plain; version=0.0.4"}
PROTOBUF = {
    "Content-Type": "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
    "encoding=delimited"
}
# A counter `hits_pb` with the value 7.
FAMILY = b"\x18\x0a\x07hits_pb\x18\x00\x22\x0b\x1a\x09\x09\0\0\0\0\0\0\x1c\x40"
HISTOGRAM = (
    "# HELP h A histogram.\n# TYPE h histogram\n"
    'h_bucket{le="0.1"} 1\nh_bucket{le="1"} 3\nh_bucket{le="+Inf"} 4\nh_sum 5.5\nh_count 4\n'
)
SUMMARY = '# TYPE s summary\ns{quantile="0.5"} 1.5\ns{quantile="0.9"} 2\ns_sum 6\ns_count 4\n'
B64 = base64.urlsafe_b64encode("a/b".encode()).decode()

# Each request: method, path, body, header.
REQUESTS = [
    ("PUT", "job/a", "# HELP x A gauge.\n# TYPE x gauge\nx 1\n", {}),
    ("POST", "job/a", "y 2\n", {}),
    ("POST", "job/a", '# HELP x A gauge.\n# TYPE x gauge\nx{k="1"} 3\nx{k="2"} 4\n', {}),
    ("PUT", "job/a/instance/i", "# HELP x A gauge.\n# TYPE x gauge\nx 5\n", {}),
    ("PUT", "job/b", "# TYPE c counter\nc 17\n# TYPE d_total counter\nd_total 18\n", {}),
    ("PUT", "job/b", "# TYPE c counter\nc 18\n", {}),
    ("PUT", "job/h", HISTOGRAM, {}),
    ("POST", "job/h", SUMMARY, {}),
    ("POST", "job/h", HISTOGRAM.replace("0.1", "0.2"), {}),
    ("POST", "job/h2", HISTOGRAM, {}),
    ("PUT", f"job@base64/{B64}", "z 1\n", {}),
    ("PUT", f"job@base64/{B64}/path@base64/L3Zhci90bXA", "z 1\n", {}),
    ("PUT", "job/e/empty@base64/=", "z 1\n", {}),
    ("PUT", "job/e2/empty/", "z 1\n", {}),
    ("PUT", "job/a%20b/z/%E2%82%AC", "z 1\n", {}),
    ("PUT", "job/t/job/u", 'z{job="v",instance="w"} 1\n', {}),
    ("PUT", "job/d/k/1/k/2", "z 1\n", {}),
    # Invalid requests.
    ("PUT", "job/f", "z 1 1700000000000\n", {}),
    ("PUT", "job/f", "z{ 1\n", {}),
    ("PUT", "job/f", "z one\n", {}),
    ("PUT", "job/f", "z 1\nz 2\n", {}),
    ("PUT", "job/f", 'z{job="a"} 1\nz{job="b"} 2\n', {}),
    ("PUT", "job/f", "# TYPE x counter\nx 1\n", {}),
    ("PUT", "job/f", "h_count 1\n", {}),
    ("PUT", "job/f/odd", "z 1\n", {}),
    ("PUT", "job/f/__x/y", "z 1\n", {}),
    ("PUT", "job/f/1x/y", "z 1\n", {}),
    ("PUT", "job/f/x@base64/!!", "z 1\n", {}),
    ("PUT", "job@base64/=", "z 1\n", {}),
    ("PUT", "job/a", '# HELP x A gauge.\n# TYPE x gauge\nx{instance="i"} 1\n', {}),
    ("POST", "job/b", "# TYPE c counter\nc 19\n", {}),
    ("PATCH", "job/b", "z 1\n", {}),
    ("GET", "job/b", None, {}),
    # Encodings of the body.
    ("PUT", "job/pb", FAMILY, PROTOBUF),
    ("PUT", "job/pb2", FAMILY[:9], PROTOBUF),
    ("PUT", "job/gz", gzip.compress(b"z 6\n"), {"Content-Encoding": "gzip"}),
    ("PUT", "job/gz2", b"z 6\n", {"Content-Encoding": "gzip"}),
    ("PUT", "job/nan", "# TYPE g gauge\ng NaN\n# TYPE inf gauge\ninf +Inf\n", {}),
    ("PUT", "job/empty", "", {}),
    ("PUT", "job/own", "push_time_seconds 5\npush_failure_time_seconds 6\nz 1\n", {}),
    ("PUT", "job/gone", "# TYPE turns gauge\nturns 1\n", {}),
    # Removal, and another type afterwards.
    ("DELETE", "job/gone", None, {}),
    ("PUT", "job/gone", "# TYPE turns counter\nturns 2\n", {}),
    ("PUT", "job/gone", "# TYPE turns summary\nturns_count 2\nturns_sum 3\n", {}),
    ("DELETE", "job/a", None, {}),
    ("DELETE", "job/none", None, {}),
    ("DELETE", "job/f/odd", None, {}),
    ("DELETE", f"job@base64/{B64}", None, {}),
    ("PUT", "job/gone", "", {}),
]


def main() -> int:
    gateway, quipu, pusher = sys.argv[1:]
    failures = 0
    with tempfile.TemporaryDirectory() as home:
        peers = [
            Peer([os.path.abspath(gateway), "--web.enable-admin-api", "--web.listen-address={}"], home),
            Peer([os.path.abspath(quipu), "serve", "--push-admin", "--log-level=warn", "--listen={}"], home),
        ]
        try:
            for method, path, body, header in REQUESTS:
                statuses = [p.request(method, f"/metrics/{path}", body, header)[0] for p in peers]
                shown = [p.shown() for p in peers]
                what = f"{method} {path} {body!r}"
                if statuses[0] != statuses[1]:
                    failures += 1
                    print(f"{what}: {statuses[0]}, but quipu {statuses[1]}")
                if shown[0] != shown[1]:
                    failures += 1
                    print(f"{what}: the expositions differ")
                    for line in sorted(shown[0] ^ shown[1]):
                        print("   ", "gateway" if line in shown[0] else "quipu  ", line)
            for peer in peers:
                subprocess.run([pusher, f"http://127.0.0.1:{peer.port}"], check=True)
            shown = [p.shown() for p in peers]
            if shown[0] != shown[1]:
                failures += 1
                print("client_golang: the expositions differ")
                for line in sorted(shown[0] ^ shown[1]):
                    print("   ", "gateway" if line in shown[0] else "quipu  ", line)
            listings = [p.listing() for p in peers]
            for key in sorted(listings[0].keys() | listings[1].keys()):
                one, two = (listing.get(key) for listing in listings)
                if one != two:
                    failures += 1
                    print(f"JSON of {key}:\n    gateway {one}\n    quipu   {two}")
            for method in ("POST", "PUT"):
                statuses = [p.request(method, "/api/v1/admin/wipe", "", {})[0] for p in peers]
                if statuses[0] != statuses[1]:
                    failures += 1
                    print(f"wipe: {statuses}")
            time.sleep(0.2)
            shown = [p.shown() for p in peers]
            if any(shown):
                failures += 1
                print("after wipe:", shown)
        finally:
            for peer in peers:
                peer.process.kill()
                peer.process.wait()
    print(f"{len(REQUESTS)} requests, {failures} differences")
    return int(failures > 0)


class Peer:
    def __init__(self, command, home):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [part.format(f"127.0.0.1:{self.port}") for part in command]
        log = subprocess.DEVNULL if os.environ.get("QUIET") else None
        self.process = subprocess.Popen(command, cwd=home, stdout=log, stderr=subprocess.DEVNULL)
        for _ in range(500):
            try:
                if self.request("GET", "/-/ready", None, {})[0] == 200:
                    return
            except OSError:
                time.sleep(0.02)
        raise SystemExit(f"{command[0]} is not ready")

    def request(self, method, path, body, header):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path, body=body, headers={**TEXT, **header})
        response = connection.getresponse()
        return response.status, response.read()

    def shown(self):
        """The series with a job, with their types and values."""
        text = self.request("GET", "/metrics", None, {})[1].decode()
        kinds, shown = {}, []
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                name, kind = line.split(" ")[2:4]
                kinds[name] = kind
            match = re.match(r'([^{ #]+)(\{.*\})? (.*)', line)
            if not match or 'job="' not in line:
                continue
            name, labels, value = match.groups()
            base = re.sub("_(sum|count|bucket)$", "", name)
            kind = kinds.get(name) or kinds.get(base)
            labels = ",".join(sorted(re.findall(r'[^{},]+="(?:[^"\\]|\\.)*"', labels)))
            labels = re.sub(r'le="([^"]*)"', lambda m: f'le="{float(m[1])}"', labels)
            number = float(value)
            if name in ("push_time_seconds", "push_failure_time_seconds"):
                number = float(number > 0)
            shown.append(f"{kind} {name}{{{labels}}} {number}")
        if len(shown) != len(set(shown)):
            raise SystemExit(f"a series is shown twice: {text}")
        return set(shown)

    def listing(self):
        groups = json.loads(self.request("GET", "/api/v1/metrics", None, {})[1])["data"]
        listing = {}
        for group in groups:
            for name, family in group.items():
                if isinstance(family, dict) and "metrics" in family:
                    assert re.match(r"\d{4}-\d\d-\d\dT", family.pop("time_stamp"))
                    family["metrics"].sort(key=lambda metric: sorted(metric["labels"].items()))
                    for metric in family["metrics"]:
                        buckets = metric.get("buckets")
                        if isinstance(buckets, dict):
                            # This bucket is implicit in protobuf, but explicit in the text format.
                            buckets.pop("+Inf", None)
                        elif buckets:
                            # Prometheus reads bounds from a table whose last digit can be off.
                            for bucket in buckets:
                                bucket[1:3] = [f"{float(bound):.14g}" for bound in bucket[1:3]]
                    if name.startswith("push_"):
                        for metric in family["metrics"]:
                            metric["value"] = float(metric["value"]) > 0
                        family.pop("help", None)
            listing[json.dumps(group["labels"], sort_keys=True)] = group
        return listing


sys.exit(main())
