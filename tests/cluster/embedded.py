"""The embedded API for tests: its verbs without HTTP, or the whole server on loopback with a small client."""

from __future__ import annotations

import io
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp
import msgspec

from koordinator.api.document import Document
from koordinator.base.clock import ManualClock
from koordinator.cluster.admission.chain import AdmissionChain
from koordinator.cluster.admission.plugins import OF_OBJECTS
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.resource import Registry
from koordinator.cluster.server import EmbeddedApi, ServerOptions
from koordinator.cluster.storage.indexed import MemoryStorage
from koordinator.cluster.storage.watch_cache import HistoryLimits
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.target import Target, decode


@dataclass
class Verbs:
    """An environment in memory and shorthands for what tests do all the time."""

    clock: ManualClock = field(default_factory=ManualClock)
    limits: HistoryLimits = field(default_factory=HistoryLimits)

    def __post_init__(self) -> None:
        self.storage = MemoryStorage(self.limits)
        # Without NamespaceLifecycle: the namespace "default" is there in name alone.
        self.environment = Environment(
            self.storage, Registry(BUILTIN_RESOURCES), self.clock, Random(1), AdmissionChain(*OF_OBJECTS)
        )

    def target(self, plural: str, name: str = "", *, group: str = "", subresource: str = "") -> Target:
        resource = self.environment.registry.stored[group, plural]
        assert resource is not None
        return Target(resource, "default" if resource.namespaced else None, name, subresource)

    async def create(self, plural: str, obj: Document, *, group: str = "") -> Document:
        target = self.target(plural, group=group)
        return decode(target.resource, await create(self.environment, target, obj))

    def get(self, plural: str, name: str, *, group: str = "") -> Document | None:
        target = self.target(plural, name, group=group)
        return self.environment.lookup(group, plural, target.namespace, name)


def pod(name: str = "", **spec: Any) -> Document:
    """A pod that passes validation."""
    metadata: Document = {"name": name} if name else {"generateName": "pod-"}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "image"}], **spec}}


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> Document:
    return {"metadata": {"name": name, **metadata}, "data": data or {}}


@dataclass(frozen=True)
class HttpResponse:
    status: int
    body: Any
    headers: dict[str, str]


class ApiClient:
    """Requests with the server's token, answers decoded."""

    def __init__(self, api: EmbeddedApi, session: aiohttp.ClientSession) -> None:
        self.api = api
        self.session = session

    async def request(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **headers: str
    ) -> HttpResponse:
        data = None
        if body is not None:
            data = io.BytesIO(body if isinstance(body, bytes) else msgspec.json.encode(body))
        sent = {"Content-Type": content_type, **{name.replace("_", "-"): text for name, text in headers.items()}}
        async with self.session.request(method, self.api.url + path, data=data, headers=sent) as response:
            raw = await response.read()
            is_json = response.content_type == "application/json"
            return HttpResponse(response.status, msgspec.json.decode(raw) if is_json else raw, dict(response.headers))

    async def get(self, path: str, **headers: str) -> Any:
        return (await self.request("GET", path, **headers)).body

    async def post(self, path: str, body: Any) -> Any:
        response = await self.request("POST", path, body)
        assert response.status == 201, response.body
        return response.body

    @asynccontextmanager
    async def watch(self, path: str, **headers: str) -> AsyncIterator[AsyncIterator[Document]]:
        """The events of a watch, as they come."""
        separator = "&" if "?" in path else "?"
        url = f"{self.api.url}{path}{separator}watch=true"
        async with self.session.get(url, headers={n.replace("_", "-"): t for n, t in headers.items()}) as response:
            assert response.status == 200
            yield _lines(response)


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[Document]:
    while line := await response.content.readline():
        yield msgspec.json.decode(line)


@asynccontextmanager
async def embedded_api(options: ServerOptions | None = None) -> AsyncIterator[ApiClient]:
    """A server on a free loopback port, in memory unless ``options`` say otherwise."""
    async with EmbeddedApi(options) as api:
        context = ssl.create_default_context(cadata=api.certificate_authority)
        connector = aiohttp.TCPConnector(ssl=context)
        headers = {"Authorization": f"Bearer {api.token}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            yield ApiClient(api, session)
