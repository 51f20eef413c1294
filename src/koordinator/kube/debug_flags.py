"""``/debug/flags``: settings of a running program that PUT requests change, with the original's responses.

Imported only if the program serves HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from koordinator.kube.pages import ANY_METHOD, Handler, Request, Response
from koordinator.kube.serving import HealthServer

_BASE: Final = "/debug/flags"
_HEADERS: Final = {"Content-Type": "text/plain", "X-Content-Type-Options": "nosniff"}
Setters = Mapping[str, Callable[[str], str]]
"""By flag name; each sets the flag and returns the response body, or raises ValueError with the error message."""


def add_debug_flags(server: HealthServer, setters: Setters) -> None:
    """Add the routes, for leaders and followers alike; before the server starts."""
    for name, setter in setters.items():
        server.add_route(f"{_BASE}/{name}", _set(setter), method=ANY_METHOD)
    index = _index(sorted(setters))
    for path in (_BASE, f"{_BASE}/", f"{_BASE}/{{rest:.*}}"):
        server.add_route(path, index, method=ANY_METHOD)


def _set(setter: Callable[[str], str]) -> Handler:
    async def handle(request: Request) -> Response:
        if request.method != "PUT":
            return _text(406, "unsupported http method")
        try:
            return _text(200, setter(request.body.decode("utf-8", "replace")))
        except ValueError as error:
            return _text(400, str(error))

    return handle


def _index(names: list[str]) -> Handler:
    rows = "".join(f"\n<tr>{name}<br>\n" for name in names)
    page = (
        f"<html>\n<head>\n<title>{_BASE}/</title>\n</head>\n<body>\n{_BASE}/<br>\n<br>\nflags:<br>\n<table>\n{rows}\n"
        "</table>\n<br>\nfull flags configurable<br>\n</body>\n</html>\n"
    )

    async def handle(request: Request) -> Response:
        return Response(text=page, content_type="text/html; charset=utf-8")

    return handle


def _text(status: int, text: str) -> Response:
    return Response(status=status, body=f"{text}\n".encode(), headers=_HEADERS)
