"""The pod table of ``kubectl get``: how READY, STATUS and RESTARTS follow from the container states."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Column
from koordinator.cluster.strategy.table import AGE, NAME, Table, age, lookup

_NONE: Final = "<none>"


@dataclass(slots=True)
class PodSummary:
    """What one row says of a pod's containers."""

    status: str
    total: int
    ready: int = 0
    restarts: int = 0
    last_restart: str = ""

    def count(self, container: Document) -> None:
        self.restarts += container.get("restartCount") or 0
        finished = lookup(container, ("lastState", "terminated", "finishedAt")) or ""
        self.last_restart = max(self.last_restart, finished)


def summarize(pod: Document) -> PodSummary:
    """Derive the row as the real server's printer does."""
    spec, status = pod["spec"], pod.get("status") or {}
    sidecars = {c["name"] for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"}
    total = len(spec.get("containers") or []) + len(sidecars)
    conditions = {c.get("type"): c for c in status.get("conditions") or []}
    summary = PodSummary(status.get("reason") or status.get("phase") or "", total)
    if (conditions.get("PodScheduled") or {}).get("reason") == "SchedulingGated":
        summary.status = "SchedulingGated"
    initializing = _init_containers(summary, pod, sidecars)
    if not initializing or (conditions.get("Initialized") or {}).get("status") == "True":
        _restarts_of_sidecars(summary, status, sidecars)
        _app_containers(summary, status, (conditions.get("Ready") or {}).get("status") == "True")
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            summary.status = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            summary.status = "Terminating"
    return summary


def _init_containers(summary: PodSummary, pod: Document, sidecars: set[str]) -> bool:
    """Whether an init container is still to finish; the first such one gives the status."""
    statuses = pod["status"].get("initContainerStatuses") or [] if pod.get("status") else []
    for index, container in enumerate(statuses):
        summary.count(container)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if container.get("name") in sidecars and container.get("started"):
            summary.ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            summary.status = f"Init:{_ended(terminated)}"
        elif waiting.get("reason") not in (None, "", "PodInitializing"):
            summary.status = f"Init:{waiting['reason']}"
        else:
            summary.status = f"Init:{index}/{len(pod['spec'].get('initContainers') or [])}"
        return True
    return False


def _restarts_of_sidecars(summary: PodSummary, status: Document, sidecars: set[str]) -> None:
    """Once running, restarts of finished init containers no longer count."""
    summary.restarts, summary.last_restart = 0, ""
    for container in status.get("initContainerStatuses") or []:
        if container.get("name") in sidecars:
            summary.count(container)


def _app_containers(summary: PodSummary, status: Document, pod_ready: bool) -> None:
    running, error = False, ""
    for container in reversed(status.get("containerStatuses") or []):
        summary.count(container)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if waiting.get("reason"):
            summary.status = waiting["reason"]
        elif terminated is not None:
            summary.status = _ended(terminated)
            if terminated.get("exitCode"):
                error = summary.status
        elif container.get("ready") and "running" in state:
            running = True
            summary.ready += 1
    if summary.status == "Completed":
        if running:
            summary.status = "Running" if pod_ready else error or "NotReady"
        elif error:
            summary.status = error


def _ended(terminated: Document) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode') or 0}"


class _PodTable(Table):
    """All cells of a row come from one summary."""

    def row(self, obj: Document, now: datetime) -> list[Any]:
        summary = summarize(obj)
        restarts = str(summary.restarts)
        if summary.restarts and summary.last_restart:
            restarts = f"{restarts} ({age(summary.last_restart, now)} ago)"
        status = obj.get("status") or {}
        addresses = status.get("podIPs") or [{}]
        return [
            obj["metadata"].get("name") or "",
            f"{summary.ready}/{summary.total}",
            summary.status,
            restarts,
            age(obj["metadata"].get("creationTimestamp"), now),
            addresses[0].get("ip") or _NONE,
            obj["spec"].get("nodeName") or _NONE,
            status.get("nominatedNodeName") or _NONE,
            _readiness_gates(obj["spec"], status),
        ]


def _readiness_gates(spec: Document, status: Document) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return _NONE
    true = {c.get("type") for c in status.get("conditions") or [] if c.get("status") == "True"}
    return f"{sum(gate.get('conditionType') in true for gate in gates)}/{len(gates)}"


def pod_table() -> Table:
    wide = ("IP", "Node", "Nominated Node", "Readiness Gates")
    columns = (
        NAME[0],
        Column("Ready"),
        Column("Status"),
        Column("Restarts"),
        AGE[0],
        *(Column(name, priority=1) for name in wide),
    )
    return _PodTable(columns, ())
