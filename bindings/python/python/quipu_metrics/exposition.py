"""Writes the metrics of a registry in the format that a scraper asks for, and serves them by HTTP.

The native part writes the metrics of a registry's segment. Other collectors return their samples as
Python objects, and this module writes these.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import socket
import tempfile
import threading
import weakref
from functools import partial
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, Mapping, Optional, Tuple, Type
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from .backend import _quipu
from .interfaces import CollectedMetric, CollectedSample, Collector, Registry
from .registry import REGISTRY, CollectorRegistry, RestrictedRegistry
from .samples import NativeHistogram

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

CONTENT_TYPE_PLAIN_0_0_4 = "text/plain; version=0.0.4; charset=utf-8"
CONTENT_TYPE_PLAIN_1_0_0 = "text/plain; version=1.0.0; charset=utf-8"
CONTENT_TYPE_LATEST = CONTENT_TYPE_PLAIN_1_0_0
"""The ``Content-Type`` header of the bytes that ``generate_latest`` returns."""

_created = False
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_:]")


def enable_created_metrics() -> None:
    """Shows the start of each counter, histogram and summary, as ``_created`` samples."""
    global _created
    _created = True


def disable_created_metrics() -> None:
    """Omits ``_created`` samples. This is the default."""
    global _created
    _created = False


def generate_latest(registry: Collector = REGISTRY, escaping: str = "underscores") -> bytes:
    """Returns all metrics of a registry in the Prometheus text format.

    ``escaping`` is ``underscores``, or ``allow-utf-8`` for names with any characters.
    """
    return _expose(registry, "text", escaping)


def _expose(registry: Collector, form: str, escaping: str) -> bytes:
    if not isinstance(registry, CollectorRegistry) or _created:
        if isinstance(registry, (CollectorRegistry, RestrictedRegistry)):
            return _text(registry._collect(_created), form, escaping)
        return _text(registry.collect(), form, escaping)
    shown = registry._scraped()
    foreign = list(registry._foreign_metrics())
    out = _quipu.expose(*shown, (form, escaping), not foreign)
    return out + _text(foreign, form, escaping) if foreign else out


def choose_encoder(accept_header: Optional[str]) -> Tuple[Callable[[Collector], bytes], str]:
    """Returns an encoder of the format that an ``Accept`` header asks for, and its content type."""
    # The caller can pass any registry to the encoder, but foreign metrics cannot be written as
    # protobuf.
    ranges = [r for r in (accept_header or "").split(",") if "protobuf" not in r]
    form, escaping, content_type = _quipu.negotiate(",".join(ranges))
    return partial(_expose, form=form, escaping=escaping), content_type


def _choose(
    registry: Collector, accept_header: Optional[str]
) -> Tuple[Callable[[Collector], bytes], str]:
    """Chooses like `choose_encoder`, but can also choose protobuf if all metrics are native."""
    is_native = (
        isinstance(registry, CollectorRegistry)
        and not (_created or registry._target_info or registry._foreign)
    )
    if not is_native:
        return choose_encoder(accept_header)
    form, escaping, content_type = _quipu.negotiate(accept_header or "")
    return partial(_expose, form=form, escaping=escaping), content_type


def gzip_accepted(accept_encoding_header: Optional[str]) -> bool:
    """Returns whether an ``Accept-Encoding`` header accepts gzip."""
    for coding in (accept_encoding_header or "").split(","):
        name, *parameters = (part.strip().lower() for part in coding.split(";"))
        if name == "gzip":
            return not any(re.fullmatch(r"q=0(\.0*)?", part) for part in parameters)
    return False


def bake_output(
    registry: Registry,
    accept: Optional[str],
    accept_encoding: Optional[str],
    names: Optional[Iterable[str]],
    disable_compression: bool,
) -> Tuple[List[Tuple[str, str]], bytes]:
    """Returns the headers and the body of a response."""
    served: Collector = registry.restricted_registry(names) if names else registry
    encoder, content_type = _choose(served, accept)
    output = encoder(served)
    headers = [("Content-Type", content_type)]
    if not disable_compression:
        headers.append(("Vary", "Accept, Accept-Encoding"))
        if gzip_accepted(accept_encoding):
            # Compared to the default, the lowest level takes a third of the time, and its output is a
            # tenth larger.
            output = gzip.compress(output, 1)
            headers.append(("Content-Encoding", "gzip"))
    return headers, output


# The text formats for metrics that are Python objects.


def float_to_go_string(value: float) -> str:
    """Formats a number like ``prometheus_client``."""
    value = float(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    text = repr(value)
    dot = text.find(".")
    if value > 0 and dot > 6 and "e" not in text:
        digits = f"{text[0]}.{text[1:dot]}{text[dot + 1:]}".rstrip("0.")
        return f"{digits}e+{dot - 1:02d}"
    return text


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _name(name: str, escaping: str) -> str:
    if _NAME.fullmatch(name):
        return name
    if escaping == "allow-utf-8":
        return f'"{_escape(name)}"'
    name = _NOT_IN_NAMES.sub("_", name)
    return "_" + name if name[:1].isdigit() else name


def _labels(labels: Mapping[str, str], escaping: str, is_own: bool = False) -> str:
    pairs = labels.items() if is_own else sorted(labels.items())
    return ",".join(f'{_name(name, escaping)}="{_escape(str(value))}"' for name, value in pairs)


def _number(value: float, is_own: bool) -> str:
    if not is_own or not math.isfinite(value):
        return float_to_go_string(value)
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def _line(
    sample: CollectedSample, is_open_metrics: bool, escaping: str, is_own: bool = False
) -> str:
    name, labels = _name(sample.name, escaping), _labels(sample.labels, escaping, is_own)
    if name.startswith('"'):
        head = f"{{{name},{labels}}}" if labels else f"{{{name}}}"
    else:
        head = f"{name}{{{labels}}}" if labels else name
    native = getattr(sample, "native_histogram", None) if is_open_metrics else None
    line = f"{head} {_native_text(native) if native else _number(sample.value, is_own)}"
    if sample.timestamp is not None:
        if is_open_metrics:
            line += f" {sample.timestamp}"
        else:
            line += f" {int(float(sample.timestamp) * 1000)}"
    exemplars = [sample.exemplar] if is_open_metrics and sample.exemplar else []
    for exemplar in [*exemplars, *(native.nh_exemplars or () if native else ())]:
        line += f" # {{{_labels(exemplar.labels, escaping, is_own)}}} "
        line += _number(exemplar.value, is_own)
        if exemplar.timestamp is not None:
            line += f" {exemplar.timestamp}"
    return line + "\n"


def _native_text(histogram: NativeHistogram) -> str:
    fields = [
        f"count:{histogram.count_value}",
        f"sum:{histogram.sum_value}",
        f"schema:{histogram.schema}",
        f"zero_threshold:{histogram.zero_threshold}",
        f"zero_count:{histogram.zero_count}",
    ]
    for sign, spans, deltas in (
        ("negative", histogram.neg_spans, histogram.neg_deltas),
        ("positive", histogram.pos_spans, histogram.pos_deltas),
    ):
        if spans:
            fields.append(f"{sign}_spans:[{','.join(f'{span[0]}:{span[1]}' for span in spans)}]")
            fields.append(f"{sign}_deltas:[{','.join(map(str, deltas or ()))}]")
    return f"{{{','.join(fields)}}}"


def _has_exemplars(metric: CollectedMetric, sample: CollectedSample) -> bool:
    if metric.type == "counter":
        return sample.name.endswith("_total")
    if metric.type == "histogram" and sample.name == metric.name:
        return True
    return metric.type in ("histogram", "gaugehistogram") and sample.name.endswith("_bucket")


def _text(
    metrics: Iterable[CollectedMetric],
    form: str,
    escaping: str,
    *,
    is_own: bool = False,
    is_end: bool = True,
) -> bytes:
    """Encodes metrics as text. With ``is_own``, numbers and labels are written like in the native part,
    otherwise like in ``prometheus_client``."""
    is_open_metrics = form.startswith("openmetrics")
    out: List[str] = []
    for metric in metrics:
        if is_open_metrics:
            out += _header(metric.name, metric.documentation, metric.type, True, escaping)
            unit = getattr(metric, "unit", "")
            if unit:
                out.append(f"# UNIT {_name(metric.name, escaping)} {unit}\n")
            for sample in metric.samples:
                if form == "openmetrics" and getattr(sample, "native_histogram", None):
                    continue
                if sample.exemplar and not _has_exemplars(metric, sample):
                    raise ValueError(
                        f"Metric {metric.name} has exemplars, but is not a histogram bucket or counter"
                    )
                out.append(_line(sample, True, escaping, is_own))
            continue
        typ = {
            "info": "gauge", "stateset": "gauge", "gaugehistogram": "histogram",
            "unknown": "untyped",
        }.get(metric.type, metric.type)
        suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
        out += _header(metric.name + suffix, metric.documentation, typ, False, escaping)
        # Samples with a suffix that the format does not know become gauges after the metric.
        later: Dict[str, List[str]] = {}
        for sample in metric.samples:
            for end in ("_created", "_gsum", "_gcount"):
                if sample.name == metric.name + end:
                    later.setdefault(end, []).append(_line(sample, False, escaping, is_own))
                    break
            else:
                out.append(_line(sample, False, escaping, is_own))
        for end, lines in sorted(later.items()):
            out += _header(metric.name + end, metric.documentation, "gauge", False, escaping)
            out += lines
    if is_open_metrics and is_end:
        out.append("# EOF\n")
    return "".join(out).encode("utf-8", "replace")


def _header(
    name: str, documentation: object, typ: str, is_open_metrics: bool, escaping: str
) -> List[str]:
    documentation = "" if documentation is None else str(documentation)
    if is_open_metrics:
        documentation = _escape(documentation)
    else:
        documentation = documentation.replace("\\", r"\\").replace("\n", r"\n")
    name = _name(name, escaping)
    return [f"# HELP {name} {documentation}\n", f"# TYPE {name} {typ}\n"]


# Servers.


def make_wsgi_app(
    registry: Registry = REGISTRY, disable_compression: bool = False
) -> WSGIApplication:
    """Returns a WSGI application that serves the metrics on every path.

    The header ``Accept`` chooses the format, and ``?name[]=`` chooses samples by name.
    """

    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        if method == "OPTIONS":
            start_response("200 OK", [("Allow", "OPTIONS,GET"), ("Content-Type", "text/plain")])
            return [b""]
        if method not in ("GET", "HEAD"):
            headers = [("Allow", "OPTIONS,GET"), ("Content-Type", "text/plain")]
            start_response("405 Method Not Allowed", headers)
            return [f"# HTTP 405: {method} is not allowed; use OPTIONS or GET\n".encode()]
        if environ.get("PATH_INFO") == "/favicon.ico":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [b""]
        headers, output = bake_output(
            registry,
            environ.get("HTTP_ACCEPT"),
            environ.get("HTTP_ACCEPT_ENCODING"),
            parse_qs(environ.get("QUERY_STRING", "")).get("name[]"),
            disable_compression,
        )
        headers.append(("Content-Length", str(len(output))))
        start_response("200 OK", headers)
        return [output] if method == "GET" else [b""]

    return application


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _LocalServer(_Server):
    """A server at the path of a unix socket."""

    # Python on Windows has no unix sockets.
    address_family = getattr(socket, "AF_UNIX", socket.AF_INET)
    _bound: Optional[Callable[[], object]] = None

    def server_bind(self) -> None:
        self.socket.close()
        # `make_server` passes a pair of a host and a port; here, the host is the path.
        self.server_address = self.server_address[0]  # type: ignore[assignment]
        descriptor, path = _quipu.listen_at(str(self.server_address), 128)
        self.socket = socket.socket(fileno=descriptor)
        self.socket.setblocking(True)
        # The finalizer also runs when the interpreter exits, but not in a child of a fork.
        self._bound = weakref.finalize(self, path.remove)
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    def server_activate(self) -> None:
        pass

    def get_request(self) -> Tuple[socket.socket, Tuple[str, int]]:
        # Handlers expect a host and a port.
        return super().get_request()[0], ("unix", 0)

    def server_close(self) -> None:
        if self._bound:
            self._bound()
        super().server_close()


def start_wsgi_server(
    port: int,
    addr: str = "0.0.0.0",
    registry: Registry = REGISTRY,
    certfile: Optional[str] = None,
    keyfile: Optional[str] = None,
    client_cafile: Optional[str] = None,
    client_capath: Optional[str] = None,
    client_auth_required: bool = False,
) -> Tuple[WSGIServer, threading.Thread]:
    """Serves a registry from a daemon thread; returns the server and the thread.

    With an ``addr`` such as ``unix:/run/app/metrics.sock``, it listens on a unix socket, and
    ignores the port. With ``certfile`` and ``keyfile``, it serves HTTPS; with
    ``client_auth_required``, clients need a certificate that is signed by an authority in
    ``client_cafile`` or ``client_capath``.

    Raises ``OSError`` if it cannot listen there.
    """
    server_class: Type[_Server] = _LocalServer
    if addr.startswith("unix:"):
        addr = addr[len("unix:") :]
    else:
        found = socket.getaddrinfo(addr, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        server_class = type("_Server", (_Server,), {"address_family": found[0][0]})
    server = make_server(addr, port, make_wsgi_app(registry), server_class, _SilentHandler)
    if certfile and keyfile:
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if client_cafile is not None or client_capath is not None:
            context.load_verify_locations(client_cafile, client_capath)
        elif client_auth_required:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        if client_auth_required:
            context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(certfile, keyfile)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return server, thread


start_http_server = start_wsgi_server


def write_to_textfile(path: str, registry: Collector, escaping: str = "allow-utf-8") -> None:
    """Writes a registry to a file. The file is replaced atomically: readers never see a part of it.

    Raises ``OSError`` if the file cannot be written.
    """
    directory = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=directory, prefix=os.path.basename(path) + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(generate_latest(registry, escaping))
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
