"""What ``koord status`` finds out: the record of a running cluster, and the current response of each program."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import psutil

from koordinator.api.kinds import LEASES, NODES, PODS
from koordinator.api.node import LEASE_NAMESPACE, Lease, Node
from koordinator.base.clock import Clock
from koordinator.base.errors import KoordinatorError
from koordinator.cli.cluster_record import ClusterRecord, ProgramRecord, read_record
from koordinator.cli.data_folder import holder_of
from koordinator.cli.supervisor import Condition
from koordinator.cluster.nodes.node_objects import FLEET_ANNOTATION
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import Client
from koordinator.kube.write_policy import ReadOnly

HEALTHY: Final = 0
UNHEALTHY: Final = 1
NOT_RUNNING: Final = 3
_SECONDS: Final = 5.0
"""How long each may take to respond."""
_STALE_LEASE_SECONDS: Final = 60.0
"""A node whose lease is older than this is not kept: kubelets renew it every ten seconds, for forty."""


@dataclass(frozen=True, slots=True)
class Health:
    """What one program says of itself; ``error`` is empty when all is well."""

    error: str = ""
    checks: Mapping[str, bool] = field(default_factory=dict)
    """Part -> whether it is well."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What is in the cluster."""

    nodes: int
    ready_nodes: int
    pods: Mapping[str, int]
    """Phase -> pods."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is shown."""

    data: Path
    record: ClusterRecord | None = None
    """None: nothing runs, or nothing that has written down what it runs."""
    pid: int | None = None
    was_killed: bool = False
    """Nothing runs, and what ran last had no time to clean up."""
    health: Mapping[str, Health] = field(default_factory=dict)
    """By program."""
    counts: Counts | None = None

    @property
    def exit_status(self) -> int:
        if self.pid is None:
            return NOT_RUNNING
        if self.record is None or self.record.phase != "up" or any(each.error for each in self.health.values()):
            return UNHEALTHY
        return HEALTHY


async def collect(data: Path, clock: Clock) -> Report:
    """Query all of them at once."""
    pid = holder_of(data)
    record = read_record(data)
    if pid is None:
        return Report(data, was_killed=record is not None)
    if record is None or record.pid != pid:
        return Report(data, pid=pid)
    client = await _client_of(record)
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS)) as session:
            queries = _Queries(client, session, clock.now())
            counting = asyncio.ensure_future(queries.counts())
            health = await asyncio.gather(*(queries.health(program) for program in record.programs))
            counts = await counting
    finally:
        if client is not None:
            await client.close()
    by_name = {program.name: each for program, each in zip(record.programs, health, strict=True)}
    return Report(data, record, pid, health=by_name, counts=counts)


async def _client_of(record: ClusterRecord) -> KubeClient | None:
    try:
        read_only = ReadOnly("this command")
        return await connect(ClientOptions(kubeconfig=record.kubeconfig, timeout_seconds=_SECONDS, read_only=read_only))
    except KoordinatorError:
        # Still starting, or the file was deleted: the other programs are queried all the same.
        return None


def document(report: Report) -> dict[str, Any]:
    """The report as JSON."""
    record = report.record
    words = {HEALTHY: "healthy", UNHEALTHY: "unhealthy", NOT_RUNNING: "not running"}
    return {
        "status": words[report.exit_status],
        "data": str(report.data),
        "pid": report.pid,
        "command": record and record.command,
        "version": record and record.version,
        "phase": record and record.phase,
        "since": record and record.since.isoformat(),
        "kubeconfig": record and record.kubeconfig,
        "programs": [_program(program, report.health[program.name]) for program in record.programs] if record else [],
        "nodes": report.counts and {"total": report.counts.nodes, "ready": report.counts.ready_nodes},
        "pods": report.counts and {"total": sum(report.counts.pods.values()), "byPhase": dict(report.counts.pods)},
    }


def _program(program: ProgramRecord, health: Health) -> dict[str, Any]:
    shown: dict[str, Any] = msgspec.to_builtins(program)
    del shown["arguments"]
    return {**shown, "healthy": not health.error, "error": health.error, "checks": dict(health.checks)}


class _Queries:
    """The questions. ``client`` is None where the API cannot be reached."""

    def __init__(self, client: KubeClient | None, session: aiohttp.ClientSession, now: datetime) -> None:
        self._client = client
        self._session = session
        self._now = now

    async def health(self, program: ProgramRecord) -> Health:
        if program.pid is None:
            return Health(f"ended with {program.last_error}; it is started again" if program.last_error else
                          f"is {program.condition}")  # fmt: skip
        if _is_halted(program.pid):
            return Health(f"halted by a signal (SIGSTOP); kill -CONT {program.pid} lets it go on")
        if program.name == "apiserver":
            found = await self._api()
        elif program.name == "nodes":
            found = await self._nodes()
        else:
            found = await self._served(program)
        if not found.error and program.condition != Condition.RUNNING:
            return Health(program.condition, found.checks)
        return found

    async def counts(self) -> Counts | None:
        """None where the API does not respond."""
        if self._client is None:
            return None
        try:
            return await counts_of(self._client)
        except KoordinatorError:
            return None

    async def _api(self) -> Health:
        if self._client is None:
            return Health("its kubeconfig cannot be read")
        try:
            text = await self._client.raw("GET", "/readyz?verbose")
        except ApiStatusError as error:
            return health_of(error.message)
        except KoordinatorError as error:
            return Health(f"does not respond: {error}")
        return health_of(text.decode())

    async def _served(self, program: ProgramRecord) -> Health:
        """A program that serves health as Kubernetes' own do. Being able to work and being alive are two checks."""
        address = program.serves["health"]
        checks: dict[str, bool] = {}
        for path in ("healthz", "readyz"):
            try:
                async with self._session.get(f"{address}/{path}", params={"verbose": "true"}) as response:
                    found = health_of(await response.text())
            except aiohttp.ClientConnectorError:
                return Health(f"no process listens on {address}")
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                return Health(f"does not respond on {address}: {error or f'nothing within {_SECONDS:g} s'}")
            checks.update(found.checks)
            if found.error:
                return Health(found.error, checks)
        return Health(checks=checks)

    async def _nodes(self) -> Health:
        """Simulated nodes are well when they keep their leases."""
        if self._client is None:
            return Health("the API cannot be queried about its nodes")
        try:
            nodes, leases = await asyncio.gather(self._client.list(NODES), self._client.list(LEASES, LEASE_NAMESPACE))
        except KoordinatorError as error:
            return Health(f"the API cannot be queried about its nodes: {error}")
        ours = [node for node in nodes.items if FLEET_ANNOTATION in node.metadata.annotations]
        return health_of_nodes(ours, leases.items, self._now)


async def counts_of(client: Client) -> Counts:
    """What the cluster has. Raises KubeError."""
    nodes, pods = await asyncio.gather(client.list(NODES), client.list(PODS))
    phases = Counter(pod.status.phase or "Pending" for pod in pods.items)
    return Counts(len(nodes.items), sum(map(_is_ready, nodes.items)), dict(sorted(phases.items())))


def health_of_nodes(nodes: Sequence[Node], leases: Sequence[Lease], now: datetime) -> Health:
    """Simulated nodes are well when each has renewed its lease within a minute.

    One that has just registered has no lease yet: its age is that of the node.
    """
    renewed = {lease.metadata.name: lease.spec.renew_time for lease in leases}
    late = sorted(
        node.metadata.name
        for node in nodes
        if _is_stale(renewed.get(node.metadata.name) or node.metadata.creation_timestamp, now)
    )
    if late:
        more = f" and {len(late) - 1} more" if len(late) > 1 else ""
        return Health(f"{late[0]}{more} of {len(nodes)} nodes have not renewed their lease for "
                      f"{_STALE_LEASE_SECONDS:g} s")  # fmt: skip
    return Health(checks={f"{len(nodes)} nodes keep their leases": True})


def _is_stale(since: str | datetime | None, now: datetime) -> bool:
    try:
        moment = since if isinstance(since, datetime) else datetime.fromisoformat(since or "")
        return (now - moment).total_seconds() > _STALE_LEASE_SECONDS
    except (ValueError, TypeError):
        # No time at all, or one without an offset from UTC.
        return True


def health_of(text: str) -> Health:
    """``[+]ping ok`` and ``[-]storage failed: reason``, a line each."""
    checks: dict[str, bool] = {}
    failed: list[str] = []
    for line in text.splitlines():
        name, _, rest = line[3:].partition(" ")
        if line.startswith("[+]"):
            checks[name] = True
        elif line.startswith("[-]"):
            checks[name] = False
            failed.append(f"{name} {rest}")
    if not checks:
        return Health(f"says {text.strip()[:100]!r} of its health")
    return Health("; ".join(failed), checks)


def _is_ready(node: Node) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)


def _is_halted(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False
