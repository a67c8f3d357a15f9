"""What schemathesis cannot know of the daemon: bodies in formats that are not JSON.

It draws a number for each body, from which a body of the operation and the content type is made, in the
coding that the header names. With JUDGE_DAMAGE in the environment, bodies are then cut or changed.
"""

import base64
import itertools
import json
import os
import random
import struct
import time

import cramjam
import schemathesis
from hypothesis import strategies

REMOTE_WRITE_2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
FAMILIES = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)
TYPES = [
    "text/plain",
    "text/tab-separated-values",
    "application/bson",
    "application/json",
    "application/msgpack",
    "application/openmetrics-text",
    "application/protobuf",
    "application/vnd.apache.thrift.binary",
    "application/vnd.apache.thrift.compact",
    FAMILIES,
    "application/vnd.quipu",
    "application/x-msgpack",
    "application/x-ndjson",
    "application/x-protobuf",
    REMOTE_WRITE_2,
    "application/x-sereal",
]
IS_DAMAGED = bool(os.environ.get("JUDGE_DAMAGE"))
# Samples with times must not contradict the samples of other requests.
NUMBERS = itertools.count()


def body(context, value):
    """The body of a case."""
    case = context.case
    path, media_type = case.operation.path, case.media_type
    rng = random.Random(value if isinstance(value, bytes) else repr(value))
    if path == "/v1/metrics" and media_type == "application/json":
        made = value if isinstance(value, bytes) else json.dumps(value).encode()
    elif path == "/v1/metrics":
        made = otlp(rng)
    elif path == "/api/v1/write":
        made = write_2(rng) if media_type == REMOTE_WRITE_2 else write_1(rng)
    elif path == "/ingest":
        made = messages(rng, case)
    elif path == "/api/v1/import/prometheus":
        made = imported(rng, case)
    elif path in ("/write", "/api/v2/write"):
        made = influx(rng)
    elif media_type == FAMILIES:
        made = families(rng)
    else:
        made = text(rng, media_type)
    if IS_DAMAGED:
        made = damaged(rng, made)
    default = "snappy" if path == "/api/v1/write" else ""
    made = compressed(case.headers.get("Content-Encoding", default), made)
    return damaged(rng, made) if IS_DAMAGED and rng.random() < 0.3 else made


for name in TYPES:
    if name != "application/json":
        schemathesis.openapi.media_type(name, strategies.binary(min_size=4, max_size=4))
    schemathesis.serializer(name)(body)


@schemathesis.hook
def filter_case(_context, case):
    """Leaves out empty codings, which are as none."""
    return case.headers.get("Content-Encoding", "none").strip() != ""


if not IS_DAMAGED:

    @schemathesis.check
    class EveryOperationSucceeds:
        """Fails if an operation never had success: then its requests test nothing but refusals."""

        def __init__(self):
            self.tested, self.succeeded = set(), set()

        def after_response(self, _context, response, case):
            self.tested.add(case.operation.label)
            if 200 <= response.status_code < 300:
                self.succeeded.add(case.operation.label)

        def after_run(self, _context):
            never = sorted(self.tested - self.succeeded)
            assert not never, f"never had success: {', '.join(never)}"


def compressed(coding, bytes_):
    coders = {
        "gzip": cramjam.gzip.compress,
        "x-gzip": cramjam.gzip.compress,
        "deflate": cramjam.zlib.compress,
        "zstd": cramjam.zstd.compress,
        "snappy": cramjam.snappy.compress_raw,
    }
    coder = coders.get(coding)
    return bytes(coder(bytes_)) if coder else bytes_


def damaged(rng, bytes_):
    at = rng.randrange(len(bytes_) + 1)
    change = rng.choice([b"", b"\0", b"\xff" * 9, b'{"', bytes([rng.randrange(256)])])
    return bytes_[:at] + change + bytes_[at + rng.randrange(4) :][: rng.choice([0, 1 << 20])]


def text(rng, media_type, prefix="judge"):
    """Prometheus' text format, or OpenMetrics."""
    is_openmetrics = media_type == "application/openmetrics-text"
    total = f"{prefix}_hits" if is_openmetrics else f"{prefix}_hits_total"
    lines = [
        f"# TYPE {total} counter",
        f'{prefix}_hits_total{{case="{rng.randrange(5)}"}} {rng.randrange(1000)}',
        f"# HELP {prefix}_level A gauge.",
        f"# TYPE {prefix}_level gauge",
        f'{prefix}_level{{case="\\n"}} {rng.choice(["-1.5", "1e300", "+Inf"])}',
        f"# TYPE {prefix}_took histogram",
        f'{prefix}_took_bucket{{le="1"}} {rng.randrange(9)}',
        f'{prefix}_took_bucket{{le="+Inf"}} 9',
        f"{prefix}_took_sum 3.5",
        f"{prefix}_took_count 9",
    ]
    if is_openmetrics:
        lines.append("# EOF")
    return "".join(line + "\n" for line in lines).encode()


def influx(rng):
    """Lines of InfluxDB."""
    lines = range(rng.randrange(4))
    return "".join(f"influx{n},a=b value={rng.randrange(9)},text=\"x\"\n" for n in lines).encode()


def imported(rng, case):
    """Lines, unless they would be refused for the names or the time that the query gives them."""
    labels = case.query.get("extra_label", [])
    labels = labels if isinstance(labels, list) else [labels]
    names = [str(label).split("=")[0] for label in labels]
    is_plain = all(name.isascii() and name.isalpha() for name in names)
    if "timestamp" in case.query or not is_plain:
        return b"# EOF\n"
    return text(rng, case.media_type, "imported")


def messages(rng, case):
    """Messages of one kind, or none in formats that are not made here."""
    formats = {
        "application/json": "json",
        "application/x-ndjson": "json",
        "text/tab-separated-values": "tsv",
    }
    name = case.query.get("format", formats.get(case.media_type))
    if case.query.get("framing", "own") != "own":
        return b""
    number = rng.randrange(1, 1000)
    if name == "tsv":
        return f"Counter\t-\t{b'judge.lines'.hex()}\t{number}\t-\t-\n".encode()
    kind = case.query.get("message", "union")
    if name == "json" and kind in ("counter", "gauge"):
        message = {"ID": base64.b64encode(f"name=judge_{kind}".encode()).decode(), "Value": number}
        return json.dumps(message).encode() + b"\n"
    return b""


def otlp(rng):
    """A gauge and a counter of one resource."""
    now = time.time_ns()
    value = rng.choice([double_field(4, rng.random()), fixed_field(6, rng.randrange(1000))])
    point = fixed_field(3, now) + value
    gauge = field(1, b"judge.otlp") + field(3, b"s") + field(5, field(1, point))
    sums = field(1, point) + varint_field(2, rng.randrange(3)) + varint_field(3, 1)
    counter = field(1, b"judge.otlp.sum") + field(7, sums)
    return field(1, field(2, field(2, gauge) + field(2, counter)))


def write_1(rng):
    """A request of remote write 1.0 with a series that no other request contains."""
    number = next(NUMBERS)
    labels = [("__name__", "judge_written"), ("number", str(number))]
    series = b"".join(field(1, field(1, k.encode()) + field(2, v.encode())) for k, v in labels)
    sample = double_field(1, rng.random()) + varint_field(2, time.time_ns() // 1_000_000)
    return field(1, series + field(2, sample))


def write_2(rng):
    """A request of remote write 2.0 with a series that no other request contains."""
    number = next(NUMBERS)
    symbols = ["", "__name__", "judge_written_total", "number", str(number), "Help."]
    sample = double_field(1, rng.random()) + varint_field(2, time.time_ns() // 1_000_000)
    metadata = varint_field(1, 1) + varint_field(3, 5)
    series = field(1, bytes([1, 2, 3, 4])) + field(2, sample) + field(5, metadata)
    return b"".join(field(4, symbol.encode()) for symbol in symbols) + field(5, series)


def families(rng):
    """A counter and a gauge, each after its length."""
    all_ = b""
    for name, kind, value in [(b"judge_hits_total", 0, 3), (b"judge_level", 1, 2)]:
        label = field(1, b"case") + field(2, str(rng.randrange(5)).encode())
        metric = field(1, label) + field(value, double_field(1, rng.randrange(1000)))
        family = field(1, name) + varint_field(3, kind) + field(4, metric)
        all_ += varint(len(family)) + family
    return all_


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, bytes_):
    return bytes([number << 3 | 2]) + varint(len(bytes_)) + bytes_


def varint_field(number, value):
    return bytes([number << 3]) + varint(value)


def fixed_field(number, value):
    return bytes([number << 3 | 1]) + struct.pack("<Q", value)


def double_field(number, value):
    return bytes([number << 3 | 1]) + struct.pack("<d", value)
