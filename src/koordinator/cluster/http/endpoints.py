"""Paths that are not objects: discovery, OpenAPI, health, metrics, version."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from aiohttp import web

from koordinator.api.document import Document
from koordinator.cluster import discovery, openapi
from koordinator.cluster.access.identity import ANONYMOUS
from koordinator.cluster.errors import unknown_path
from koordinator.cluster.http.authentication import USER
from koordinator.cluster.http.response import document_response, json_response, negotiate
from koordinator.cluster.openapi import protobuf
from koordinator.cluster.openapi.protobuf import encode_document
from koordinator.cluster.resource import Registry

# ``/livez``, ``/readyz`` and ``/healthz``, in the words of the real server.


HEALTH_ENDPOINTS: Final = ("healthz", "livez", "readyz")
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache, no-store, must-revalidate"}
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """``why`` returns what is wrong; an empty text when nothing is."""

    name: str
    why: Callable[[], str]


def _is_reachable() -> str:
    """A client that gets this response has reached the server."""
    return ""


PING = HealthCheck("ping", _is_reachable)


@dataclass(frozen=True, slots=True)
class Health:
    """The checks of each endpoint, in the order in which they are listed."""

    live: Sequence[HealthCheck] = (PING,)
    """What a new start of the server may cure. A store that cannot write is not among it: it recovers by itself once
    its disk does, and reads are served meanwhile."""
    ready: Sequence[HealthCheck] = (PING,)

    def of(self, endpoint: str) -> Sequence[HealthCheck]:
        """``livez``, ``readyz`` or ``healthz``."""
        return self.live if endpoint == "livez" else self.ready


def health_response(health: Health, parts: Sequence[str], request: web.BaseRequest) -> web.StreamResponse:
    """``parts``: the endpoint and, for a single check, its name. Raises ApiError 404 for an unknown check.

    Who has no credential hears which check failed and not why, as on the real server.
    """
    endpoint, checks = parts[0], health.of(parts[0])
    if len(parts) > 1:
        return _single(checks, "/".join(parts[1:]))
    with_reasons = request[USER] is not ANONYMOUS
    lines, failed = _lines(checks, set(request.query.getall("exclude", ())), with_reasons=with_reasons)
    if failed:
        _LOG.warning("%s check failed: %s", endpoint, "; ".join(f"{name}: {why}" for name, why in failed.items()))
        return _text("".join([*lines, f"{endpoint} check failed\n"]), 500)
    if "verbose" not in request.query:
        return _text("ok")
    return _text("".join([*lines, f"{endpoint} check passed\n"]))


def _lines(
    checks: Sequence[HealthCheck], excluded: set[str], *, with_reasons: bool
) -> tuple[list[str], dict[str, str]]:
    lines: list[str] = []
    failed: dict[str, str] = {}
    for check in checks:
        if check.name in excluded:
            lines.append(f"[+]{check.name} excluded: ok\n")
        elif why := check.why():
            failed[check.name] = why
            lines.append(f"[-]{check.name} failed: {why if with_reasons else 'reason withheld'}\n")
        else:
            lines.append(f"[+]{check.name} ok\n")
    if unknown := sorted(excluded - {check.name for check in checks}):
        quoted = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}\n")
    return lines, failed


def _single(checks: Sequence[HealthCheck], name: str) -> web.StreamResponse:
    check = next((check for check in checks if check.name == name), None)
    if check is None:
        raise unknown_path()
    why = check.why()
    return _text(f"internal server error: {why}\n", 500) if why else _text("ok")


def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(text=text, status=status, headers=_HEADERS)


class Endpoints:
    """GET only. OpenAPI documents are kept until what is served changes."""

    def __init__(self, registry: Registry, health: Health) -> None:
        self._registry = registry
        self._health = health
        self._documents: dict[str, bytes] = {}
        self._generation = -1

    def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Raises ApiError 404."""
        parts = request.path.strip("/").split("/")
        if parts[0] in HEALTH_ENDPOINTS:
            return health_response(self._health, parts, request)
        if parts == ["openapi", "v2"] and _wants_protobuf(request.headers.get("Accept", "")):
            body = self._kept("v2 protobuf", lambda: encode_document(openapi.v2(tuple(self._registry))))
            return web.Response(body=body, headers={"Content-Type": protobuf.CONTENT_TYPE})
        if parts[0] == "openapi":
            return json_response(self._openapi(parts[1:]))
        accept = request.headers.get("Accept", "")
        negotiate(accept)
        document = self._discovery(parts, accept)
        if document is None:
            raise unknown_path()
        if document.get("kind") == "APIGroupDiscoveryList":
            response = document_response(document)
            response.headers["Content-Type"] = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            return response
        return document_response(document)

    def _discovery(self, parts: list[str], accept: str) -> Document | None:
        match parts:
            case [""]:
                return {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/openapi/v2",
                                  "/openapi/v3", "/readyz", "/version"]}  # fmt: skip
            case ["version"]:
                return discovery.VERSION
            case ["api"] | ["apis"] if negotiate(accept) == "discovery":
                return discovery.aggregated(self._registry, core=parts == ["api"])
            case ["api"]:
                return discovery.api_versions()
            case ["apis"]:
                return discovery.group_list(self._registry)
            case ["api", version]:
                return discovery.resource_list(self._registry, "", version)
            case ["apis", group]:
                return discovery.group(self._registry, group)
            case ["apis", group, version]:
                return discovery.resource_list(self._registry, group, version)
        return None

    def _openapi(self, parts: list[str]) -> bytes:
        resources = tuple(self._registry)
        match parts:
            case ["v2"]:
                return self._kept_json("v2", lambda: openapi.v2(resources))
            case ["v3"]:
                return self._kept_json("v3", lambda: openapi.v3_index(resources))
            case ["v3", "api", version] if self._registry.in_version("", version):
                return self._kept_json(f"v3/{version}", lambda: openapi.v3(resources, "", version))
            case ["v3", "apis", group, version] if self._registry.in_version(group, version):
                return self._kept_json(f"v3/{group}/{version}", lambda: openapi.v3(resources, group, version))
        raise unknown_path()

    def _kept_json(self, name: str, make: Callable[[], Document]) -> bytes:
        return self._kept(name, lambda: msgspec.json.encode(make()))

    def _kept(self, name: str, make: Callable[[], bytes]) -> bytes:
        if self._generation != self._registry.generation:
            self._documents.clear()
            self._generation = self._registry.generation
        if name not in self._documents:
            self._documents[name] = make()
        return self._documents[name]


def _wants_protobuf(accept: str) -> bool:
    """Clients that want it name it first; those that name no form get JSON."""
    return accept.partition(",")[0].partition(";")[0].strip().lower() in protobuf.ACCEPTED
