"""The services of ``/apis/v1/``: who answers which path, for the leader alone.

A follower's caches are as full as the leader's, but what is assumed and what was decided only the leader knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from aiohttp import web

from koordinator.api.codec import encode, to_document
from koordinator.kube.serving import Handler, HealthServer
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.services.provider import Service, ServiceError, ServiceProvider

_BASE: Final = "/apis/v1"
_PARAMETER: Final = re.compile(r":(\w+)")
_NOT_LEADER: Final = "the instance is not leader"


class Services:
    """Collect services, then ``mount`` them. Paths name parameters as the original does: ``/nodes/:nodeName``."""

    def __init__(self, is_leading: Callable[[], bool]) -> None:
        self._is_leading = is_leading
        self._services: dict[str, Service] = {}
        self.add(f"{_BASE}/__services__", self._list)

    def add(self, path: str, service: Service) -> None:
        """Answer GET requests for ``path``; ValueError when somebody does already."""
        if path in self._services:
            raise ValueError(f"a service answers {path} already")
        self._services[path] = service

    def add_plugins(self, profiles: Iterable[Profile]) -> None:
        """The services of every plugin that offers some; of the first profile that has it."""
        seen: set[str] = set()
        for profile in profiles:
            for plugin in profile.all(ServiceProvider):
                if plugin.name not in seen:
                    seen.add(plugin.name)
                    for path, service in plugin.services().items():
                        self.add(f"{_BASE}/plugins/{plugin.name}{path}", service)

    def mount(self, server: HealthServer) -> None:
        """Serve them all, and answer for everything else below the base path."""
        for path, service in self._services.items():
            server.add_route(_PARAMETER.sub(r"{\1}", path), self._handler(service))
        server.add_route(_BASE + "/{rest:.*}", self._handler(_unknown), method="*")

    def _handler(self, service: Service) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if not self._is_leading():
                return answer({"message": _NOT_LEADER}, 503)
            try:
                return answer(service(dict(request.match_info)))
            except ServiceError as error:
                return answer({"message": str(error)}, error.status)

        return handle

    def _list(self, parameters: Mapping[str, str]) -> Any:
        return {"GET": sorted(path for path in self._services if path.startswith(_BASE))}


def answer(document: Any, status: int = 200) -> web.Response:
    """A JSON response."""
    return web.Response(
        status=status, body=encode(to_document(document)), content_type="application/json", charset="utf-8"
    )


def _unknown(parameters: Mapping[str, str]) -> Any:
    raise ServiceError(404, f"nothing is served at {_BASE}/{parameters['rest']}; {_BASE}/__services__ lists what is")
