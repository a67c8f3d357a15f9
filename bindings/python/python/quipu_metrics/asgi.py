"""The ASGI application, for ``uvicorn`` and other servers, or to mount in a framework."""

from typing import Awaitable, Callable, Dict, Iterable, List, Mapping, Tuple, cast
from urllib.parse import parse_qs

from .exposition import bake_output
from .interfaces import Registry
from .registry import REGISTRY

__all__ = ["make_asgi_app"]

_Receive = Callable[[], Awaitable[Mapping[str, object]]]
_Send = Callable[[Dict[str, object]], Awaitable[None]]
_Application = Callable[[Mapping[str, object], _Receive, _Send], Awaitable[None]]


def make_asgi_app(
    registry: Registry = REGISTRY, disable_compression: bool = False
) -> _Application:
    """Returns an ASGI application that serves the metrics on every path.

    The header ``Accept`` chooses the format, and ``?name[]=`` chooses samples by name.
    """

    async def application(scope: Mapping[str, object], receive: _Receive, send: _Send) -> None:
        if scope.get("type") == "lifespan":
            return await _lifespan(receive, send)
        if scope.get("type") != "http":
            raise RuntimeError(f"metrics are served over http, not {scope.get('type')!r}")

        async def respond(status: int, headers: List[Tuple[str, str]], body: bytes) -> None:
            encoded = [(name.lower().encode(), value.encode()) for name, value in headers]
            await send({"type": "http.response.start", "status": status, "headers": encoded})
            await send({"type": "http.response.body", "body": body})

        method = scope.get("method", "GET")
        if method == "OPTIONS":
            return await respond(200, [("Allow", "OPTIONS,GET")], b"")
        if method not in ("GET", "HEAD"):
            body = f"# HTTP 405: {method} is not allowed; use OPTIONS or GET\n".encode()
            return await respond(405, [("Allow", "OPTIONS,GET")], body)

        received = cast(Iterable[Tuple[bytes, bytes]], scope["headers"])

        def header(wanted: bytes) -> str:
            values = (value for name, value in received if name.lower() == wanted)
            return b",".join(values).decode("latin-1")

        query = cast(bytes, scope.get("query_string", b"")).decode("utf-8", "replace")
        headers, output = bake_output(
            registry,
            header(b"accept"),
            header(b"accept-encoding"),
            parse_qs(query).get("name[]"),
            disable_compression,
        )
        headers.append(("Content-Length", str(len(output))))
        await respond(200, headers, output if method == "GET" else b"")

    return application


async def _lifespan(receive: _Receive, send: _Send) -> None:
    """Handles the lifespan protocol, for a server that runs this as the whole application."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
