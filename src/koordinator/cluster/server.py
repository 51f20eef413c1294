"""The embedded API server as a value: start it, talk to it, stop it."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import secrets
import socket
import ssl
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

import yaml
from aiohttp import web

from koordinator.base.clock import Clock, SystemClock
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.cluster.admission_webhooks.webhooks import AdmissionWebhooks
from koordinator.cluster.bootstrap import create_system_objects
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.custom_resources import CustomResources
from koordinator.cluster.disruption.controller import DisruptionController
from koordinator.cluster.http.application import Application
from koordinator.cluster.http.authentication import GROUPS, USER, TokenAuthenticator
from koordinator.cluster.http.connections import HttpLimits
from koordinator.cluster.http.reviews import REVIEW_RESOURCES
from koordinator.cluster.pki import ServingFiles, serving_files, write_private
from koordinator.cluster.registry import Registry
from koordinator.cluster.storage.hub import HistoryLimits
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.storage.lock import FolderLock
from koordinator.cluster.storage.memory import MemoryStorage
from koordinator.cluster.storage.sqlite import SqliteStorage
from koordinator.cluster.termination import Termination
from koordinator.cluster.verbs.admission import NamespaceLifecycle
from koordinator.cluster.verbs.environment import Environment

_CLUSTER = "koordinator"
_BACKLOG = 1024
_SHUTDOWN_SECONDS = 2.0


class StartError(KoordinatorError):
    """The server cannot start here; the text is one line for a person."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Without a data folder the cluster lives in memory and ends with the server."""

    data: Path | None = None
    address: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one."""
    token: str | None = None
    """Without one the data folder's is used, or a new one is made."""
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=SystemRandom)
    history: HistoryLimits = field(default_factory=HistoryLimits)
    http: HttpLimits = field(default_factory=HttpLimits)
    disruption_controller: bool = True
    """Keep the status of PodDisruptionBudgets; False leaves that to others, as a real API server does."""


class EmbeddedApi:
    """Serves from ``start`` to ``stop``; also an asynchronous context manager."""

    def __init__(self, options: ServerOptions | None = None) -> None:
        self._options = options or ServerOptions()
        if not _is_loopback(self._options.address):
            raise ConfigurationError(
                "address", self._options.address, "the embedded API serves a loopback address only"
            )
        self._cleanup = AsyncExitStack()
        self._loops: asyncio.Task[None] | None = None
        self._port = self._options.port
        self._token = ""
        self._authority = b""

    @property
    def url(self) -> str:
        host = f"[{self._options.address}]" if ":" in self._options.address else self._options.address
        return f"https://{host}:{self._port}"

    @property
    def token(self) -> str:
        return self._token

    @property
    def certificate_authority(self) -> str:
        """PEM."""
        return self._authority.decode()

    async def __aenter__(self) -> EmbeddedApi:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Raises StartError or StorageError when the port, the folder or the store cannot be used."""
        async with AsyncExitStack() as stack:
            folder = self._folder(stack)
            files = serving_files(folder / "pki", self._options.clock.now())
            self._authority = files.authority.read_bytes()
            self._token = self._options.token or _kept_token(folder / "token")
            listener = self._listen(stack)
            storage: Storage = (
                SqliteStorage(folder / "cluster.db", self._options.history)
                if self._options.data
                else MemoryStorage(self._options.history)
            )
            stack.push_async_callback(storage.close)
            registry = Registry((*BUILTIN_RESOURCES, *REVIEW_RESOURCES))
            webhooks = self._webhooks(storage, registry)
            stack.push_async_callback(webhooks.close)
            environment = self._environment(storage, registry, webhooks)
            # Before the webhooks are known: none may keep the server from what it needs itself.
            await create_system_objects(environment)
            await self._start_loops(environment, webhooks, stack)
            await self._serve(environment, listener, files, storage, stack)
            self._cleanup = stack.pop_all()

    async def stop(self) -> None:
        """Ends watches first, then waits briefly for requests, then closes the store."""
        await self._cleanup.aclose()

    async def failed(self) -> None:
        """Returns never; raises what ended one of the server's own loops."""
        assert self._loops is not None, "start first"
        await asyncio.shield(self._loops)

    def kubeconfig(self) -> str:
        """YAML for kubectl and every client-go program."""
        authority = base64.b64encode(self._authority).decode()
        cluster = {"server": self.url, "certificate-authority-data": authority}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": _CLUSTER, "cluster": cluster}],
                "users": [{"name": USER, "user": {"token": self._token}}],
                "contexts": [{"name": _CLUSTER, "context": {"cluster": _CLUSTER, "user": USER}}],
                "current-context": _CLUSTER,
            },
            sort_keys=False,
        )

    def write_kubeconfig(self, path: Path) -> None:
        """Readable by the owner alone: it holds the token."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, self.kubeconfig().encode())

    def _folder(self, stack: AsyncExitStack) -> Path:
        if self._options.data is None:
            return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="koordinator-")))
        lock = FolderLock(self._options.data)
        stack.callback(lock.release)
        return self._options.data

    def _listen(self, stack: AsyncExitStack) -> socket.socket:
        address, port = self._options.address, self._options.port
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError as error:
            raise StartError(f"cannot listen on {address} port {port}: {error.strerror}") from error
        self._port = listener.getsockname()[1]
        return listener

    def _webhooks(self, storage: Storage, registry: Registry) -> AdmissionWebhooks:
        user = {"username": USER, "groups": list(GROUPS)}
        return AdmissionWebhooks(storage, registry, self._options.clock, self._options.random, user)

    def _environment(self, storage: Storage, registry: Registry, webhooks: AdmissionWebhooks) -> Environment:
        return Environment(
            storage=storage,
            registry=registry,
            clock=self._options.clock,
            random=self._options.random,
            admission=(NamespaceLifecycle(),),
            webhooks=webhooks,
        )

    async def _start_loops(self, environment: Environment, webhooks: AdmissionWebhooks, stack: AsyncExitStack) -> None:
        custom_resources = CustomResources(environment)
        after = custom_resources.load()
        webhooks_after = webhooks.load()

        async def loops() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(custom_resources.run(after), name="custom resources")
                group.create_task(webhooks.run(webhooks_after), name="admission webhooks")
                group.create_task(Termination(environment).run(), name="termination")
                if self._options.disruption_controller:
                    group.create_task(DisruptionController(environment).run(), name="disruption budgets")

        self._loops = asyncio.get_running_loop().create_task(loops(), name="embedded API")
        stack.push_async_callback(_cancelled, self._loops)

    async def _serve(
        self,
        environment: Environment,
        listener: socket.socket,
        files: ServingFiles,
        storage: Storage,
        stack: AsyncExitStack,
    ) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Go's clients do not resume sessions, and making tickets is a good part of a handshake.
        context.num_tickets = 0
        context.load_cert_chain(files.certificate, files.key)
        application = Application(environment, TokenAuthenticator(self._token), self._options.http)
        runner = web.ServerRunner(application.server(), shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.SockSite(runner, listener, ssl_context=context, backlog=_BACKLOG).start()
        # Run first on the way out: a request that never ends by itself must not be waited for.
        stack.callback(storage.end_watches)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


def _kept_token(path: Path) -> str:
    try:
        if kept := path.read_text().strip():
            return kept
    except FileNotFoundError:
        pass
    token = secrets.token_urlsafe(32)
    write_private(path, token.encode())
    return token


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
