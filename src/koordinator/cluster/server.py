"""The embedded API server as a value: start it, talk to it, stop it."""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
import sqlite3
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random, SystemRandom

from aiohttp import web

from koordinator.base.accepting import BACKLOG
from koordinator.base.clock import Clock, SystemClock
from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.base.listen_address import is_loopback
from koordinator.base.metrics import Metrics
from koordinator.base.port_holder import holder_of
from koordinator.base.served_connections import ProgramConnections, ServedConnections
from koordinator.cluster import kubeconfig_file
from koordinator.cluster.access.aggregation import ClusterRoleAggregation
from koordinator.cluster.access.authorizer import AlwaysAllow, AuthorizationMode, Authorizer, RoleBased
from koordinator.cluster.access.bootstrap import create_bootstrap_objects
from koordinator.cluster.access.escalation import EscalationCheck
from koordinator.cluster.access.identity import ADMIN, User
from koordinator.cluster.access.node_authorizer import NodesAndRoles
from koordinator.cluster.access.node_graph import followed_graph
from koordinator.cluster.access.tracking import followed_policy
from koordinator.cluster.admission.certificates import CertificateApproval, CertificateSigning
from koordinator.cluster.admission.chain import Plugin
from koordinator.cluster.admission.node_restriction import NodeRestriction
from koordinator.cluster.admission.plugins import WITH_CONTROLLERS, admission_chain
from koordinator.cluster.admission.pods import ServiceAccount
from koordinator.cluster.admission_webhooks.webhooks import AdmissionWebhooks
from koordinator.cluster.api_service import IpAddresses, create_api_service
from koordinator.cluster.background import BackgroundLoops, LoopBody
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from koordinator.cluster.conversion_webhooks import WebhookConversion
from koordinator.cluster.custom_resources import CustomResources
from koordinator.cluster.data_folder import FolderLock, claim_folder, write_private
from koordinator.cluster.disruption import DisruptionController
from koordinator.cluster.garbage_collector.collector import GarbageCollector
from koordinator.cluster.http.access import Authenticator, StaticTokens
from koordinator.cluster.http.application import CONNECTION_OPTIONS, Application, HttpLimits
from koordinator.cluster.http.endpoints import PING, Health, HealthCheck
from koordinator.cluster.http.reviews import REVIEW_RESOURCES
from koordinator.cluster.metrics_api import METRICS_RESOURCES
from koordinator.cluster.pki import ServingFiles, renew_serving, serving_files
from koordinator.cluster.quota.controller import QuotaController
from koordinator.cluster.resource import Registry
from koordinator.cluster.service_account_tokens import AccountTokens, AccountVerifier, kept_tokens
from koordinator.cluster.service_addresses import ServiceAddresses
from koordinator.cluster.storage.database import Connect
from koordinator.cluster.storage.indexed import MemoryStorage
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.storage.sqlite import SqliteStorage
from koordinator.cluster.storage.watch_cache import HistoryLimits
from koordinator.cluster.strategy.missing_controllers import creation_warnings
from koordinator.cluster.system_objects import create_system_objects
from koordinator.cluster.termination import Termination
from koordinator.cluster.verbs.environment import Admission, Environment
from koordinator.cluster.verbs.subresources import BINDING
from koordinator.kube.http_server import HttpServer
from koordinator.kube.serving_certificate import server_context

_SHUTDOWN_SECONDS = 2.0
_CANCEL_SECONDS = 0.5
_RECOVERY_SECONDS = 1.0
_RENEWAL_SECONDS = 60.0
_DEFINITIONS = "custom-resource-definitions"


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
    connect: Connect = sqlite3.connect
    """How the database is opened; tests inject failures."""
    http: HttpLimits = field(default_factory=HttpLimits)
    disruption_controller: bool = True
    """Keep the status of PodDisruptionBudgets; False leaves that to others, as a real API server does."""
    garbage_collector: bool = True
    """Delete what no owner is left of, as kube-controller-manager does; both may run."""
    missing_controller_warnings: bool = True
    """Warn the creator of objects on which nothing here acts; False where kube-controller-manager does."""
    workload_controllers: bool = False
    """Those of ``koord up`` run beside the server: nobody is warned of what they act on."""
    role_aggregation: bool = True
    """Give ClusterRoles with an aggregationRule their rules; a kube-controller-manager does so, too."""
    authorization_mode: AuthorizationMode = AuthorizationMode.ALWAYS_ALLOW
    users: Mapping[str, User] = field(default_factory=dict)
    """Token -> who has it, beside the administrator."""


class EmbeddedApi:
    """Serves from ``start`` to ``stop``; also an asynchronous context manager."""

    def __init__(self, options: ServerOptions | None = None) -> None:
        self._options = options or ServerOptions()
        if not is_loopback(self._options.address):
            raise ConfigurationError(
                "address", self._options.address, "the embedded API serves a loopback address only"
            )
        self._cleanup = AsyncExitStack()
        self._loops: asyncio.Task[None] | None = None
        self._quotas = QuotaController()
        self._metrics = Metrics()
        self._metrics.add_process_metrics()
        self._metrics.add_build_info("koord up")
        self._port = self._options.port
        self._token = ""
        self._authority = b""
        self._connections: ServedConnections | None = None

    @property
    def url(self) -> str:
        host = f"[{self._options.address}]" if ":" in self._options.address else self._options.address
        return f"https://{host}:{self._port}"

    @property
    def token(self) -> str:
        return self._token

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections) if self._connections is not None else 0

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
                SqliteStorage(folder / "cluster.db", self._options.history, connect=self._options.connect)
                if self._options.data
                else MemoryStorage(self._options.history)
            )
            stack.push_async_callback(storage.close)
            registry = Registry((*BUILTIN_RESOURCES, BINDING, *REVIEW_RESOURCES, *METRICS_RESOURCES))
            authorizer, checks = self._authorization(storage, registry)
            admission = admission_chain(*checks, *self._with_controllers())
            webhooks = self._webhooks(storage, registry, admission, authorizer)
            stack.push_async_callback(webhooks.close)
            tokens = _account_tokens(folder / "pki" / "service-accounts.key")
            environment = self._environment(storage, registry, webhooks, admission, tokens)
            admission.follow(environment)
            # Before the webhooks are known: none may keep the server from what it needs itself.
            await create_system_objects(environment)
            await create_api_service(environment, self._options.address, self._port)
            if self._options.authorization_mode.by_roles:
                await create_bootstrap_objects(environment)
            context = _tls(files)
            health = self._start_loops(environment, webhooks, partial(self._renew, folder / "pki", context), stack)
            authenticator = self._authenticator(environment, tokens)
            application = Application(environment, authenticator, health, self._options.http, self._metrics, authorizer)
            await self._serve(environment, listener, context, application, stack)
            self._cleanup = stack.pop_all()

    async def stop(self) -> None:
        """Ends watches first, then waits briefly for requests, then closes the store."""
        await self._cleanup.aclose()

    async def failed(self) -> None:
        """Returns when the store closes; raises what ended the server's own loops. No failure of one of them does."""
        assert self._loops is not None, "start first"
        await asyncio.shield(self._loops)

    def kubeconfig(self) -> str:
        """YAML for kubectl and every client-go program."""
        return kubeconfig_file.kubeconfig(self.url, self._authority, self._token)

    def write_kubeconfig(self, path: Path) -> None:
        """Readable by the owner alone: it holds the token. Raises ForeignKubeconfig when something else is there."""
        kubeconfig_file.write_kubeconfig(path, self.url, self._authority, self._token)

    def _folder(self, stack: AsyncExitStack) -> Path:
        if self._options.data is None:
            return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="koordinator-")))
        claim_folder(self._options.data)
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
            taken = f"it is taken by {holder_of(port)}; choose another with --port"
            reason = taken if error.errno == errno.EADDRINUSE else error.strerror
            raise StartError(f"cannot listen on {address} port {port}: {reason}") from error
        self._port = listener.getsockname()[1]
        return listener

    def _webhooks(
        self, storage: Storage, registry: Registry, admission: Admission, authorizer: Authorizer
    ) -> AdmissionWebhooks:
        return AdmissionWebhooks(
            storage, registry, admission, self._options.clock, self._options.random, authorizer.decide
        )

    def _authorization(self, storage: Storage, registry: Registry) -> tuple[Authorizer, Sequence[Plugin]]:
        """Who may do what, and what checks that nobody grants more than they hold."""
        if self._options.authorization_mode is AuthorizationMode.ALWAYS_ALLOW:
            return AlwaysAllow(), ()
        policy = followed_policy(storage, registry)
        authorizer: Authorizer = RoleBased(policy)
        restrictions: list[Plugin] = []
        if self._options.authorization_mode is AuthorizationMode.NODE_RBAC:
            authorizer = NodesAndRoles(followed_graph(storage, registry), authorizer)
            restrictions.append(NodeRestriction())
        signers = (CertificateApproval(authorizer), CertificateSigning(authorizer))
        return authorizer, (EscalationCheck(authorizer, policy), *signers, *restrictions)

    def _authenticator(self, environment: Environment, tokens: AccountTokens) -> Authenticator:
        users = {**self._options.users, self._token: ADMIN}
        accounts = AccountVerifier(tokens, self._options.clock, environment.lookup)
        # Where everything is permitted, nobody gets it without a credential.
        anonymous = self._options.authorization_mode.by_roles
        return Authenticator((StaticTokens(users), accounts), anonymous=anonymous)

    def _environment(
        self,
        storage: Storage,
        registry: Registry,
        webhooks: AdmissionWebhooks,
        admission: Admission,
        tokens: AccountTokens,
    ) -> Environment:
        services = registry.stored["", "services"]
        assert services is not None
        controllers_run, warns = self._options.workload_controllers, self._options.missing_controller_warnings
        warnings = creation_warnings(controllers_run=controllers_run) if warns else {}
        return Environment(
            storage=storage,
            registry=registry,
            clock=self._options.clock,
            random=self._options.random,
            admission=admission,
            webhooks=webhooks,
            quotas=self._quotas,
            addresses=ServiceAddresses(storage, services, self._options.random),
            creation_warnings=warnings,
            account_tokens=tokens,
            tracks_fields=True,
        )

    def _with_controllers(self) -> Sequence[Plugin]:
        if not self._options.workload_controllers:
            return ()
        return (ServiceAccount(self._options.clock, self._options.random), *WITH_CONTROLLERS)

    async def _renew(self, folder: Path, context: ssl.SSLContext) -> AsyncIterator[None]:
        """New connections are served a certificate that the clock agrees with, however long the server runs."""
        while True:
            await self._options.clock.sleep(_RENEWAL_SECONDS)
            if renew_serving(folder, self._options.clock.now()):
                context.load_cert_chain(folder / "server.crt", folder / "server.key")
            yield

    def _start_loops(
        self, environment: Environment, webhooks: AdmissionWebhooks, renew: LoopBody, stack: AsyncExitStack
    ) -> Health:
        custom_resources = CustomResources(environment, partial(WebhookConversion, webhooks.post))
        custom_resources.load()
        webhooks.load()
        loops = BackgroundLoops(self._options.clock, self._options.random)
        loops.add(_DEFINITIONS, custom_resources.watch)
        for name, configurations in webhooks.configurations().items():
            loops.add(name, configurations.watch)
        loops.add("storage-recovery", partial(_recover_storage, environment))
        loops.add("serving-certificate", renew)
        controllers = [Termination(environment).loops(), self._quotas.loops(environment, loops.add)]
        controllers.append(IpAddresses(environment).loops())
        if self._options.disruption_controller:
            controllers.append(DisruptionController(environment).loops())
        if self._options.garbage_collector:
            controllers.append(GarbageCollector(environment).loops())
        if self._options.role_aggregation:
            controllers.append(ClusterRoleAggregation(environment).loops())
        for controller in controllers:
            for name, body in controller.items():
                loops.add(name, body)
        self._loops = asyncio.get_running_loop().create_task(loops.run(), name="embedded API")
        stack.push_async_callback(_cancelled, self._loops)
        contents = {_DEFINITIONS: custom_resources.check, **{n: c.check for n, c in webhooks.configurations().items()}}
        checks = [HealthCheck(name, partial(_loop_error, loops, name, contents.get(name))) for name in loops.names]
        storage = HealthCheck("storage", environment.storage.health)
        return Health(live=(PING, *checks), ready=(PING, storage, *checks))

    async def _serve(
        self,
        environment: Environment,
        listener: socket.socket,
        context: ssl.SSLContext,
        application: Application,
        stack: AsyncExitStack,
    ) -> None:
        runner = web.ServerRunner(application.server(), shutdown_timeout=_CANCEL_SECONDS)
        await runner.setup()
        program = ProgramConnections(self._metrics, self._options.clock)
        self._connections = program.serve(str(self._port), self._options.http.connections)
        server = HttpServer(runner, self._connections, self._options.clock, tls=context, options=CONNECTION_OPTIONS)
        stack.push_async_callback(server.stop, _SHUTDOWN_SECONDS)
        listener.listen(BACKLOG)
        server.start([listener])
        # Run first on the way out: a request that never ends by itself must not be waited for.
        stack.callback(environment.storage.end_watches)


def _tls(files: ServingFiles) -> ssl.SSLContext:
    context = server_context()
    context.load_cert_chain(files.certificate, files.key)
    # A client need not show a certificate; one that it shows must be of this cluster's authority.
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(files.authority)
    return context


def _account_tokens(path: Path) -> AccountTokens:
    try:
        return kept_tokens(path)
    except OSError as error:
        raise StartError(f"the key in {path} cannot be read or written: {error}") from error


async def _recover_storage(environment: Environment) -> AsyncIterator[None]:
    """A full disk or a lost database must not stay a fault for longer than it is one."""
    while True:
        await environment.clock.sleep(_RECOVERY_SECONDS)
        environment.storage.try_again()
        yield


def _loop_error(loops: BackgroundLoops, name: str, contents: Callable[[], str] | None) -> str:
    """Of the loop itself, or else of what it follows."""
    return loops.check(name) or (contents() if contents is not None else "")


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


def _kept_token(path: Path) -> str:
    """Raises StartError when the token cannot be kept: every start would make another one."""
    try:
        if path.exists() and (kept := path.read_text().strip()):
            return kept
        token = secrets.token_urlsafe(32)
        write_private(path, token.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"the token in {path} cannot be read or written: {error}") from error
    return token
