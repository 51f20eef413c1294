"""The services of ``/apis/v1/``: which handler serves which path, for the leader alone.

A follower's caches are as full as the leader's, but what is assumed and what was decided only the leader knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from koordinator.base.services import Service, ServiceError
from koordinator.kube.pages import ANY_METHOD, Handler, Request, Response, json_response
from koordinator.kube.serving import HealthServer

BASE: Final = "/apis/v1"
_PARAMETER: Final = re.compile(r":(\w+)")
_NOT_LEADER: Final = "the instance is not leader"


class Services:
    """Collect services, then ``mount`` them. Paths name parameters as the original does: ``/nodes/:nodeName``."""

    def __init__(self, is_leading: Callable[[], bool]) -> None:
        self._is_leading = is_leading
        self._services: dict[str, Service] = {}
        self.add(f"{BASE}/__services__", self._list)

    def add(self, path: str, service: Service) -> None:
        """Serve GET requests for ``path``; ValueError when another handler does already."""
        if path in self._services:
            raise ValueError(f"a service answers {path} already")
        self._services[path] = service

    def mount(self, server: HealthServer) -> None:
        """Serve them all, and respond to everything else below the base path."""
        for path, service in self._services.items():
            server.add_route(_PARAMETER.sub(r"{\1}", path), self._handler(service))
        server.add_route(BASE + "/{rest:.*}", self._handler(_unknown), method=ANY_METHOD)

    def _handler(self, service: Service) -> Handler:
        async def handle(request: Request) -> Response:
            if not self._is_leading():
                return json_response({"message": _NOT_LEADER}, 503)
            try:
                return json_response(service({**request.query, **request.parameters}))
            except ServiceError as error:
                return json_response({"message": str(error)}, error.status)

        return handle

    def _list(self, parameters: Mapping[str, str]) -> Any:
        return {"GET": sorted(path for path in self._services if path.startswith(BASE))}


def _unknown(parameters: Mapping[str, str]) -> Any:
    raise ServiceError(404, f"nothing is served at {BASE}/{parameters['rest']}; {BASE}/__services__ lists what is")
