"""The ASGI application, for ``uvicorn`` and other servers, or to mount in a framework."""

from urllib.parse import parse_qs

from .exposition import bake_output
from .registry import REGISTRY

__all__ = ["make_asgi_app"]


def make_asgi_app(registry=REGISTRY, disable_compression: bool = False):
    """Returns an ASGI application that serves the metrics on every path."""

    async def application(scope, receive, send):
        if scope.get("type") == "lifespan":
            return await _lifespan(receive, send)
        if scope.get("type") != "http":
            raise RuntimeError(f"metrics are served over http, not {scope.get('type')!r}")

        async def answer(status, headers, body):
            headers = [(name.lower().encode(), value.encode()) for name, value in headers]
            start = {"type": "http.response.start", "status": status, "headers": headers}
            await send(start)
            await send({"type": "http.response.body", "body": body})

        method = scope.get("method", "GET")
        if method == "OPTIONS":
            return await answer(200, [("Allow", "OPTIONS,GET")], b"")
        if method not in ("GET", "HEAD"):
            body = f"# HTTP 405: {method} is not allowed; use OPTIONS or GET\n".encode()
            return await answer(405, [("Allow", "OPTIONS,GET")], body)

        def header(wanted):
            values = (value for name, value in scope["headers"] if name.lower() == wanted)
            return b",".join(values).decode("latin-1")

        query = parse_qs(scope.get("query_string", b"").decode("utf-8", "replace"))
        headers, output = bake_output(
            registry,
            header(b"accept"),
            header(b"accept-encoding"),
            query.get("name[]"),
            disable_compression,
        )
        headers.append(("Content-Length", str(len(output))))
        await answer(200, headers, output if method == "GET" else b"")

    return application


async def _lifespan(receive, send):
    """Handles the lifespan protocol, for a server that runs this as the whole application."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
