"""Creates a ready client from options; a program calls this once at its start."""

from __future__ import annotations

import asyncio
import os
import platform
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import koordinator
from koordinator.base.clock import Clock, SystemClock
from koordinator.base.metrics import Metrics
from koordinator.base.time_limits import TimeLimits
from koordinator.kube import connection
from koordinator.kube.client import KubeClient
from koordinator.kube.connection import Connection
from koordinator.kube.credentials import Credentials, TokenFile, fixed_credentials, impersonation_headers
from koordinator.kube.exec_credentials import ExecCredentials, SharedPlugins, check_plugin
from koordinator.kube.kubeconfig import User
from koordinator.kube.pooled_transport import PooledTransport
from koordinator.kube.sender import RateLimiter, RequestMetrics, RetryPolicy, Sender
from koordinator.kube.tls import KeyPair, RotatingContext
from koordinator.kube.transport import Transport
from koordinator.kube.write_policy import ReadOnly

_GO_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


def user_agent(program: str) -> str:
    """Return ``koord-scheduler/0.2.0 (linux/amd64) koordinator``, in the format of Go clients."""
    machine = platform.machine()
    return (
        f"{program}/{koordinator.__version__} "
        f"({platform.system().lower()}/{_GO_MACHINES.get(machine, machine)}) koordinator"
    )


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How to reach the API server, and the limits of the client.

    ``kubeconfig`` is a path, ``context`` one of its contexts, ``master`` an address that replaces the cluster's server;
    if empty, ``connection.resolve`` decides. With ``insecure`` the server's certificate is not verified: a kubelet's is
    often self-signed. ``token`` is that of another user than the configuration's. ``qps`` (requests per second; zero or
    less: no limit) and ``burst`` are those of ``--kube-api-qps`` and ``--kube-api-burst``. ``timeout_seconds`` bounds
    each call including its retries. With ``lists_in_slices``, decoding a long list yields to the event loop in between.
    ``metrics`` is the registry of the client's metrics. A request that never left this machine is retried up to
    ``max_connection_retries`` times: programs wait for their server, an interactive command reports at once that the
    server is unreachable. With ``read_only``, the client refuses every write. ``headers`` are further ones of each
    request.
    """

    kubeconfig: str = ""
    context: str = ""
    master: str = ""
    insecure: bool = False
    token: str = field(default="", repr=False)
    qps: float = 0.0
    burst: int = 0
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    user_agent: str = field(default_factory=lambda: user_agent("koordinator"))
    timeout_seconds: float = 60.0
    watch_stall_seconds: float | None = None
    max_connections: int = 256
    max_connection_retries: int = 5
    lists_in_slices: bool = False
    read_only: ReadOnly | None = None
    metrics: Metrics | None = None
    clock: Clock = field(default_factory=SystemClock)
    random: random.Random = field(default_factory=random.Random, repr=False)
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    root: Path = Path("/")
    plugins: SharedPlugins = field(default_factory=SharedPlugins, repr=False, compare=False)


async def connect(options: ClientOptions) -> KubeClient:
    """Return a client; nothing is sent yet. Raises KubeconfigError or CredentialError for an unusable configuration."""
    found = await asyncio.to_thread(
        connection.resolve,
        options.kubeconfig,
        options.context,
        options.master,
        environment=options.environment,
        root=options.root,
    )
    limits = TimeLimits(options.clock)
    if options.insecure and found.tls is not None:
        found = replace(found, tls=replace(found.tls, authority_file="", authority=b"", insecure=True))
    if options.token:
        tls = replace(found.tls, key_pair=None) if found.tls is not None else None
        found = replace(found, user=User(token=options.token), tls=tls)
    rotating = RotatingContext(found.tls, options.clock) if found.tls is not None else None
    transport = _transport(found, rotating, options, limits)
    try:
        sender = Sender(
            transport,
            _credentials(found, options, rotating, transport),
            RateLimiter(options.clock, options.qps, options.burst),
            RetryPolicy(options.random, max_connection_retries=options.max_connection_retries),
            options.clock,
            RequestMetrics(options.metrics or Metrics(), urlsplit(found.endpoint.url).netloc.rpartition("@")[2]),
            identity=[("User-Agent", options.user_agent), *options.headers, *impersonation_headers(found.user)],
            timeout_seconds=options.timeout_seconds,
            tls=rotating,
            read_only=options.read_only,
        )
    except BaseException:
        await transport.close()
        raise
    return KubeClient(
        sender,
        limits,
        options.random,
        watch_stall_seconds=options.watch_stall_seconds,
        lists_in_slices=options.lists_in_slices,
    )


@asynccontextmanager
async def connected(options: ClientOptions) -> AsyncIterator[KubeClient]:
    """A context with a client, which is closed at the end; see ``connect``."""
    client = await connect(options)
    try:
        yield client
    finally:
        await client.close()


def _transport(found: Connection, tls: RotatingContext | None, options: ClientOptions, limits: TimeLimits) -> Transport:
    context = tls.context if tls is not None else None
    return PooledTransport(found.endpoint, context, options.clock, limits, max_connections=options.max_connections)


def _credentials(
    found: Connection, options: ClientOptions, tls: RotatingContext | None, transport: Transport
) -> Credentials:
    """As in client-go: a token file, a fixed token or a password; an exec plugin only if the user has none of them."""
    user = found.user
    if user.token_file:
        return TokenFile(Path(user.token_file), options.clock, user.token)
    if user.exec is None or user.token or user.username or (found.tls is not None and found.tls.key_pair is not None):
        return fixed_credentials(user)
    check_plugin(user.exec, found.source)

    def present(key_pair: KeyPair | None) -> None:
        if tls is not None:
            tls.present(key_pair)
            transport.use_tls(tls.context)

    plugin = options.plugins.plugin(user.exec, found.cluster, options.clock, options.environment)
    return ExecCredentials(plugin, present)
