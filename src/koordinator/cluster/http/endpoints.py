"""Paths that are not objects: discovery, OpenAPI, health, metrics, version."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from aiohttp import web

from koordinator.api.document import Document
from koordinator.cluster import discovery, openapi
from koordinator.cluster.access.identity import ANONYMOUS
from koordinator.cluster.errors import unknown_path
from koordinator.cluster.http.access import USER
from koordinator.cluster.http.negotiation import DISCOVERY, VERSION, represent
from koordinator.cluster.http.response import document_response
from koordinator.cluster.openapi import protobuf
from koordinator.cluster.openapi.protobuf import encode_document
from koordinator.cluster.resource import Registry
from koordinator.cluster.verbs.environment import TokenIssuer

# ``/livez``, ``/readyz`` and ``/healthz``, in the words of the real server.


HEALTH_ENDPOINTS: Final = ("healthz", "livez", "readyz")
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache, no-store, must-revalidate"}
_LOG = logging.getLogger(__name__)
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_UNCACHED: Final = "no-cache, private"


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


Digest = Callable[[bytes], str]


def _sha512(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()


class Endpoints:
    """GET only. The documents about what is served are kept until that changes."""

    def __init__(self, registry: Registry, health: Health, tokens: TokenIssuer | None = None) -> None:
        self._registry = registry
        self._tokens = tokens
        self._health = health
        self._documents: dict[str, _Kept] = {}
        self._generation = -1

    def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Raises ApiError 404."""
        parts = request.path.strip("/").split("/")
        if parts[0] in HEALTH_ENDPOINTS:
            return health_response(self._health, parts, request)
        if parts[0] == "openapi":
            return self._openapi(parts[1:], request)
        path = request.path.rstrip("/")
        if path in (discovery.ISSUER_PATH, discovery.KEY_SET_PATH):
            return self._issuer(path, request.host)
        form = represent(request, DISCOVERY if parts[0] in ("api", "apis") else VERSION).form
        if form == "discovery" and parts in (["api"], ["apis"]):
            return self._aggregated(request, core=parts == ["api"])
        document = self._discovery(parts, request.host)
        if document is None:
            raise unknown_path()
        return document_response(document)

    def _aggregated(self, request: web.BaseRequest, *, core: bool) -> web.StreamResponse:
        name = "api" if core else "apis"
        kept = self._kept_json(name, lambda: discovery.aggregated(self._registry, core=core))
        return kept.response(request, _AGGREGATED, "public")

    def _discovery(self, parts: list[str], host: str) -> Document | None:
        match parts:
            case [""]:
                return discovery.paths(self._registry, self._other_paths())
            case ["version"]:
                return discovery.VERSION
            case ["api"]:
                return discovery.api_versions(host)
            case ["apis"]:
                return discovery.group_list(self._registry)
            case ["api", version]:
                return discovery.resource_list(self._registry, "", version)
            case ["apis", group]:
                return discovery.group(self._registry, group)
            case ["apis", group, version]:
                return discovery.resource_list(self._registry, group, version)
        return None

    def _other_paths(self) -> Iterator[str]:
        yield from ("/metrics", "/openapi/v2", "/openapi/v3", "/version")
        if self._tokens is not None:
            yield from (discovery.ISSUER_PATH, discovery.KEY_SET_PATH)
        for endpoint in HEALTH_ENDPOINTS:
            yield f"/{endpoint}"
            yield from (f"/{endpoint}/{check.name}" for check in self._health.of(endpoint))

    def _issuer(self, path: str, host: str) -> web.StreamResponse:
        """Of the tokens of ServiceAccounts, and their keys."""
        if self._tokens is None:
            raise unknown_path()
        if path == discovery.ISSUER_PATH:
            document, media_type = discovery.issuer(host), "application/json"
        else:
            document, media_type = self._tokens.key_set(), "application/jwk-set+json"
        headers = {"Cache-Control": "public, max-age=3600", "Content-Type": media_type}
        return web.Response(body=msgspec.json.encode(document), headers=headers)

    def _openapi(self, parts: list[str], request: web.BaseRequest) -> web.StreamResponse:
        resources = tuple(self._registry)
        match parts:
            case ["v2"] if _wants_protobuf(request.headers.get("Accept", "")):
                kept = self._kept("v2 protobuf", lambda: encode_document(openapi.v2(resources)))
                return kept.response(request, protobuf.CONTENT_TYPE)
            case ["v2"]:
                return self._kept_json("v2", lambda: openapi.v2(resources)).response(request)
            case ["v3"]:
                return self._kept_json("v3", lambda: openapi.v3_index(resources)).response(request)
            case ["v3", "api", version] if self._registry.in_version("", version):
                return self._version(request, "", version)
            case ["v3", "apis", group, version] if self._registry.in_version(group, version):
                return self._version(request, group, version)
        raise unknown_path()

    def _version(self, request: web.BaseRequest, group: str, version: str) -> web.StreamResponse:
        """The kinds of one group version. With the hash that the index gives, the document never changes."""
        members = self._registry.in_version(group, version)
        kept = self._kept_json(
            f"v3/{group}/{version}",
            lambda: openapi.v3(members, group, version),
            lambda _: openapi.fingerprint(members),
        )
        requested = request.query.get("hash")
        if requested is None:
            return kept.response(request)
        if requested != kept.digest:
            return web.Response(status=301, headers={"Location": f"{request.path}?hash={kept.digest}"})
        return kept.response(request, caching="public, immutable")

    def _kept_json(self, name: str, make: Callable[[], Document], digest: Digest | None = None) -> _Kept:
        return self._kept(name, lambda: msgspec.json.encode(make()), digest)

    def _kept(self, name: str, make: Callable[[], bytes], digest: Digest | None = None) -> _Kept:
        if self._generation != self._registry.generation:
            self._documents.clear()
            self._generation = self._registry.generation
        if name not in self._documents:
            body = make()
            self._documents[name] = _Kept(body, (digest or _sha512)(body))
        return self._documents[name]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A document, which clients keep, too, and ask for again with its ETag."""

    body: bytes
    digest: str

    def response(
        self, request: web.BaseRequest, media_type: str = "application/json", caching: str = _UNCACHED
    ) -> web.Response:
        headers = {"Cache-Control": caching, "ETag": f'"{self.digest}"', "Vary": "Accept"}
        if request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        return web.Response(body=self.body, headers={**headers, "Content-Type": media_type})


def _wants_protobuf(accept: str) -> bool:
    """Clients that want it name it first; those that name no form get JSON."""
    return accept.partition(",")[0].partition(";")[0].strip().lower() in protobuf.ACCEPTED
