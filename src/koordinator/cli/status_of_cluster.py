"""What ``koord status`` finds out about a cluster that no ``koord up`` of this machine runs: through its API alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from koordinator.api.installation import MANAGER_LEASE, NAMESPACE
from koordinator.api.kinds import LEASES, NODE_METRICS
from koordinator.api.node import LeaseSpec
from koordinator.api.nodemetric import NodeMetric
from koordinator.base.clock import Clock
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_failure import explain_error
from koordinator.cli.status_report import HEALTHY, UNHEALTHY, Counts, counts_of
from koordinator.kube.connect import connected
from koordinator.kube.errors import ApiStatusError, KubeError
from koordinator.kube.interface import Client

LEASES_OF_PROGRAMS: Final = {
    "scheduler": "koord-scheduler",
    "manager": MANAGER_LEASE,
    "descheduler": "koord-descheduler",
}
"""Program -> the Lease that its leader holds, in the namespace of the installation."""
_OPTIONAL: Final = frozenset({"descheduler"})
_LEASE_SECONDS: Final = 15
"""Of a Lease that does not say how long it lasts: client-go's default."""
_FRESH: Final = timedelta(minutes=5)
"""koordlet reports each minute unless the NodeMetric says otherwise."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads the replicas of one program; ``error`` is empty while one does."""

    program: str
    holder: str = ""
    renewed: datetime | None = None
    error: str = ""

    @property
    def is_needed(self) -> bool:
        """Whether the cluster is unhealthy without it."""
        return self.program not in _OPTIONAL


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Everything that is shown. ``reporting`` are the nodes of which koordlet has reported lately."""

    cluster: Cluster
    leaders: Sequence[Leader]
    counts: Counts
    reporting: int

    @property
    def exit_status(self) -> int:
        return UNHEALTHY if any(leader.error for leader in self.leaders if leader.is_needed) else HEALTHY


async def collect_cluster(cluster: Cluster, clock: Clock) -> ClusterReport:
    """Query it. Raises ExplainError."""
    assert cluster.client is not None
    now = clock.now()
    try:
        async with connected(cluster.client) as client:
            leaders, counts, metrics = await asyncio.gather(
                _leaders(client, now), counts_of(client), client.list(NODE_METRICS)
            )
    except KubeError as error:
        raise explain_error(error, cluster.name, cluster.client.timeout_seconds) from error
    return ClusterReport(cluster, leaders, counts, sum(1 for metric in metrics.items if _is_fresh(metric, now)))


def document_of_cluster(report: ClusterReport) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "status": "healthy" if report.exit_status == HEALTHY else "unhealthy",
        "cluster": report.cluster.document,
        "programs": [_leader_document(leader) for leader in report.leaders],
        "nodes": {"total": report.counts.nodes, "ready": report.counts.ready_nodes, "reporting": report.reporting},
        "pods": {"total": sum(report.counts.pods.values()), "byPhase": dict(report.counts.pods)},
    }


def leader_of(program: str, spec: LeaseSpec, now: datetime) -> Leader:
    """What a Lease says about its program."""
    renewed = _moment(spec.renew_time)
    holder = spec.holder_identity or ""
    if not holder:
        return Leader(program, "", renewed, "no replica holds its Lease")
    lasts = timedelta(seconds=spec.lease_duration_seconds or _LEASE_SECONDS)
    if renewed is None or now - renewed > lasts:
        return Leader(program, holder, renewed, "its Lease has run out: the program has ended, or hangs")
    return Leader(program, holder, renewed)


async def _leaders(client: Client, now: datetime) -> list[Leader]:
    return [await _leader(client, program, name, now) for program, name in LEASES_OF_PROGRAMS.items()]


async def _leader(client: Client, program: str, name: str, now: datetime) -> Leader:
    try:
        lease = await client.get(LEASES, name, NAMESPACE)
    except ApiStatusError as error:
        if not error.is_not_found:
            raise
        return Leader(program, error=f"there is no Lease {NAMESPACE}/{name}: it does not run here")
    return leader_of(program, lease.spec, now)


def _leader_document(leader: Leader) -> Mapping[str, Any]:
    return {
        "name": leader.program,
        "healthy": not leader.error,
        "error": leader.error,
        "holder": leader.holder,
        "renewed": leader.renewed and leader.renewed.isoformat(),
    }


def _moment(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _is_fresh(metric: NodeMetric, now: datetime) -> bool:
    updated = metric.status.update_time
    return updated is not None and now - updated <= _FRESH
