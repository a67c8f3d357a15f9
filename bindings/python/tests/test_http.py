"""The WSGI and ASGI applications, the server thread, and the file for the node exporter."""

import asyncio
import gzip
import os
import socket
import subprocess
import sys
import urllib.request
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

import quipu_metrics as quipu
from quipu_metrics.backend import IS_NATIVE

PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
)


@pytest.fixture
def counted(registry):
    counter = quipu.Counter("c", "C.", ["a"], registry=registry)
    for i in range(100):
        counter.labels(str(i)).inc()
    return registry


def wsgi(app, method="GET", query="", **headers):
    environ = {"REQUEST_METHOD": method, "QUERY_STRING": query}
    setup_testing_defaults(environ)
    environ.update({"HTTP_" + name: value for name, value in headers.items()})
    answer = {}

    def start_response(status, headers, exc_info=None):
        answer.update(status=status, headers=dict(headers))

    body = validator(app)(environ, start_response)
    answer["body"] = b"".join(body)
    body.close()
    return answer


def asgi(app, method="GET", query="", **headers):
    sent = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "query_string": query.encode(),
        "headers": [
            (name.lower().replace("_", "-").encode(), value.encode())
            for name, value in headers.items()
        ],
    }
    asyncio.run(app(scope, receive, send))
    headers = {name.decode().title(): value.decode() for name, value in sent[0]["headers"]}
    return {"status": str(sent[0]["status"]), "headers": headers, "body": sent[1]["body"]}


@pytest.mark.parametrize(
    "call, make", [(wsgi, quipu.make_wsgi_app), (asgi, quipu.make_asgi_app)]
)
def test_applications(counted, call, make):
    app = make(counted)
    plain = call(app)
    assert plain["headers"]["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert plain["body"].count(b"c_total{") == 100
    assert int(plain["headers"]["Content-Length"]) == len(plain["body"])
    zipped = call(app, ACCEPT_ENCODING="deflate, gzip;q=0.5")
    assert zipped["headers"]["Content-Encoding"] == "gzip"
    assert gzip.decompress(zipped["body"]) == plain["body"]
    assert "Content-Encoding" not in call(app, ACCEPT_ENCODING="gzip;q=0")["headers"]
    assert "Content-Encoding" not in call(make(counted, True), ACCEPT_ENCODING="gzip")["headers"]
    open_metrics = call(app, ACCEPT="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert open_metrics["body"].endswith(b"# EOF\n")
    assert "openmetrics" in open_metrics["headers"]["Content-Type"]
    binary = call(app, ACCEPT=PROTOBUF)
    assert ("protobuf" in binary["headers"]["Content-Type"]) == IS_NATIVE
    assert call(app, query="name[]=nothing")["body"] == b""
    assert call(app, "POST")["status"].startswith("405")
    assert call(app, "OPTIONS")["headers"]["Allow"] == "OPTIONS,GET"


def test_asgi_takes_any_bytes(counted):
    app = quipu.make_asgi_app(counted)
    sent = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message)

    headers = [(b"accept", b"\xff\xfe"), (b"accept-encoding", b"\xff")]
    scope = {"type": "http", "method": "GET", "headers": headers, "query_string": b"\xff=\xfe"}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 200


def test_protobuf_is_not_for_foreign_collectors(counted):
    class Foreign:
        def collect(self):
            return [quipu.Metric("foreign", "F.", "gauge")]

    counted.register(Foreign())
    assert "text/plain" in wsgi(quipu.make_wsgi_app(counted), ACCEPT=PROTOBUF)["headers"]["Content-Type"]


def test_a_server_and_a_file(counted, tmp_path):
    server, thread = quipu.start_http_server(0, "127.0.0.1", counted)
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        with urllib.request.urlopen(url, timeout=120) as answer:
            body = answer.read()
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
    assert body == quipu.generate_latest(counted)
    quipu.write_to_textfile(str(tmp_path / "c.prom"), counted)
    assert (tmp_path / "c.prom").read_bytes() == body
    assert len(list(tmp_path.iterdir())) == 1


def ask_at(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: client.recv(65536), b"")).split(b"\r\n\r\n", 1)[1]


def test_a_unix_socket(counted, tmp_path):
    path = tmp_path / "app.sock"
    address = f"unix:{path}"
    server, thread = quipu.start_http_server(0, address, counted)
    try:
        assert ask_at(path) == quipu.generate_latest(counted)
        with pytest.raises(OSError, match="another process listens on it"):
            quipu.start_http_server(0, address, counted)
        child = os.fork()
        if child == 0:
            server.server_close()
            os._exit(0)
        os.waitpid(child, 0)
        assert ask_at(path) == quipu.generate_latest(counted)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
    assert not path.exists()
    # A process that was killed leaves its path. The next one replaces it and removes it at its end.
    start = f"import os, quipu_metrics as quipu; quipu.start_http_server(0, {address!r}); "
    subprocess.run([sys.executable, "-c", start + "os._exit(0)"], check=True, timeout=60)
    assert path.exists()
    subprocess.run([sys.executable, "-c", start], check=True, timeout=60)
    assert not path.exists()
    path.write_text("precious")
    with pytest.raises(OSError, match="not a socket"):
        quipu.start_http_server(0, address, counted)
    assert path.read_text() == "precious"
