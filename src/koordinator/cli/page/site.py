"""The addresses of the page: its files, the stream of what changes, and what is asked about one object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from koordinator.base.clock import Clock
from koordinator.cli.explain import answer
from koordinator.cli.explain_failure import ExplainError, ForbiddenError, NotFoundError, UsageError
from koordinator.cli.explain_target import parse_target
from koordinator.cli.explain_terminal import PAGE_TERMINAL
from koordinator.cli.page.broadcast import Broadcast
from koordinator.cli.page.feed import CLASSES, INTERFERENCE, PENDING
from koordinator.cli.page.history import SPANS, HistoryError, PastUsage
from koordinator.cli.page.local_access import LocalAccess
from koordinator.cli.page.pod_list import PodList
from koordinator.cli.page.static_files import HEADERS, StaticFiles
from koordinator.cli.page.viewers import Access, Viewer
from koordinator.cli.page.what_if_runs import WhatIfRuns
from koordinator.kube.pages import Handler, PageError, Request, Response, json_response
from koordinator.kube.serving import HealthServer

_STATUSES: Final = {NotFoundError: 404, ForbiddenError: 403, UsageError: 400}
_FRESH: Final = {**HEADERS, "Cache-Control": "no-store"}


_OfViewer = Callable[[Request, Viewer], Awaitable[Response]]


class Site:
    """What one server of the page serves."""

    def __init__(
        self,
        access: Access,
        broadcast: Broadcast,
        pods: PodList,
        history: PastUsage,
        what_if: WhatIfRuns,
        clock: Clock,
    ) -> None:
        self._access = access
        self._broadcast = broadcast
        self._pods = pods
        self._history = history
        self._what_if = what_if
        self._clock = clock
        self._files = StaticFiles()

    def add_to(self, server: HealthServer) -> None:
        """Before it starts."""
        server.add_route("/", partial(self._file, "index.html"))
        server.add_route("/static/{path:.+}", self._static)
        for path, handler in {
            "/api/stream": self._stream,
            "/api/pods": self._list_pods,
            "/api/history": self._read_history,
            "/api/explain/{what:.+}": self._explain,
        }.items():
            server.add_route(path, self._for_viewers(handler))
        if isinstance(self._access, LocalAccess):
            server.add_route("/open", self._access.enter)
            server.add_route("/tickets", self._access.give_ticket, "POST")
        server.add_route("/api/what-if", self._for_viewers(self._what_if.respond), "POST")

    def _for_viewers(self, handler: _OfViewer) -> Handler:
        async def handle(request: Request) -> Response:
            response = await handler(request, await self._access.viewer(request))
            response.headers |= _FRESH
            return response

        return handle

    async def _file(self, path: str, request: Request) -> Response:
        self._access.check_host(request)
        return self._files.respond(path, request)

    async def _static(self, request: Request) -> Response:
        return await self._file(request.parameters["path"], request)

    async def _stream(self, request: Request, viewer: Viewer) -> Response:
        return Response(parts=self._broadcast.events(viewer), content_type="text/event-stream; charset=utf-8")

    async def _list_pods(self, request: Request, viewer: Viewer) -> Response:
        measured = viewer.sight_of(INTERFERENCE).everywhere
        return json_response(self._pods.page(request.query, viewer.sight_of(PENDING), measured=measured))

    async def _read_history(self, request: Request, viewer: Viewer) -> Response:
        sight, span = viewer.sight_of(CLASSES), SPANS.get(request.query.get("span", "1h"))
        if not sight.everywhere:
            return json_response({"problem": sight.lacks}, 403)
        if span is None:
            raise PageError(400, f"400: span: one of {', '.join(SPANS)} is needed\n")
        try:
            return json_response(await self._history.read(span, self._clock.now().timestamp()))
        except HistoryError as error:
            return json_response({"problem": str(error)}, 503)

    async def _explain(self, request: Request, viewer: Viewer) -> Response:
        """The document and the text of ``koord explain``, for the words that the command takes: ``pod/shop/web``."""
        kind, _, name = request.parameters["what"].partition("/")
        words = [kind, name] if name else [kind]
        try:
            found = await answer(parse_target(words, None), viewer.sources, PAGE_TERMINAL, viewer.session)
        except ExplainError as error:
            status = next((code for known, code in _STATUSES.items() if isinstance(error, known)), 502)
            return json_response({"problem": str(error)}, status)
        return json_response({"document": found.document, "text": found.text(), "note": found.note})
