"""Paths that are not resources: health, version, discovery and OpenAPI."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from aiohttp import web

from koordinator.api.document import Document
from koordinator.cluster import discovery, openapi
from koordinator.cluster.errors import unknown_path
from koordinator.cluster.http.health import HEALTH_ENDPOINTS, Health, answer_health
from koordinator.cluster.http.negotiation import negotiate
from koordinator.cluster.http.responses import document_response, json_response
from koordinator.cluster.openapi import protobuf
from koordinator.cluster.openapi.protobuf import encode_document
from koordinator.cluster.registry import Registry


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
            return answer_health(self._health, parts, request)
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
                return {"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3",
                                  "/readyz", "/version"]}  # fmt: skip
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
