"""One workload with one scheduler on a control plane of its own, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import control_planes, workload
from benchmarks.contenders import Contender
from benchmarks.scheduler_perf.executor import Created, Executor
from benchmarks.scheduler_perf.measurement import Measurement, totals
from benchmarks.scheduler_perf.operations import AnyOperation
from benchmarks.scheduler_perf.parameters import Parameters, operations_of
from benchmarks.scheduler_perf.pod_tracker import PodTracker
from benchmarks.scheduler_perf.scheduler_process import SchedulerProcess, started
from benchmarks.scheduler_perf.templates import Templates
from benchmarks.scheduler_perf.test_cases import Found, Parameter
from benchmarks.scheduler_perf.verification import faults
from koordinator.api.kinds import NODES, PODS
from koordinator.base.errors import KoordinatorError
from koordinator.kube.interface import Client
from tests.real.control_plane import ControlPlane
from tests.real.programs import RealPrograms

_DISABLED_ADMISSION: Final = ("ServiceAccount", "TaintNodesByCondition", "Priority")
"""As scheduler_perf does: pods name priorities, and nobody looks after nodes and service accounts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """``faults`` is empty when all pods that must be bound are and no rule is broken."""

    params: Mapping[str, Parameter]
    measurements: Sequence[Measurement]
    peak_bytes: int
    bound: int
    not_bound: int
    deleted: int
    faults: Sequence[str]

    def document(self) -> dict[str, object]:
        return {
            "params": dict(self.params),
            "measurements": [one.document() for one in self.measurements],
            "peak_mebibytes": round(self.peak_bytes / 2**20, 1),
            "pods_bound": self.bound,
            "pods_not_bound": self.not_bound,
            "pods_deleted": self.deleted,
            "faults": list(self.faults),
        }


@dataclass(frozen=True, slots=True)
class Conditions:
    """How workloads are run. ``limit``: seconds that one operation may wait for pods."""

    scale: float = 1.0
    limit: float = 300.0
    created: Created = Created.BEFORE


async def run_workload(
    found: Found, contender: Contender, conditions: Conditions, programs: RealPrograms, folder: Path
) -> Outcome:
    """``folder`` must be empty and may be deleted afterwards. Raises KoordinatorError when it cannot be run."""
    parameters = Parameters(found.workload, conditions.scale)
    operations = operations_of(found.case, parameters)
    path = found.case.scheduler_config_path
    async with _control_plane(programs, folder / "plane") as (plane, client):
        await workload.install_definitions(client)
        async with started(contender, programs, plane, folder, found.folder / path if path else None) as scheduler:
            await scheduler.until_ready(client)
            return await _run(found, operations, parameters, client, scheduler, conditions)


@asynccontextmanager
async def _control_plane(programs: RealPrograms, folder: Path) -> AsyncIterator[tuple[ControlPlane, Client]]:
    plane = ControlPlane(programs.kubernetes, folder, disabled_admission=_DISABLED_ADMISSION)
    async with control_planes.started(plane) as client:
        yield plane, client


async def _run(
    found: Found,
    operations: Sequence[AnyOperation],
    parameters: Parameters,
    client: Client,
    scheduler: SchedulerProcess,
    conditions: Conditions,
) -> Outcome:
    tracker = PodTracker()
    page = await client.list(PODS, limit=1)
    try:
        async with asyncio.TaskGroup() as tasks:
            watchers = [
                tasks.create_task(tracker.follow(client, page.resource_version)),
                tasks.create_task(scheduler.fail_when_ended()),
            ]
            templates = Templates(found.folder)
            default_pod = found.case.default_pod_template_path
            executor = Executor(
                client, templates, default_pod, tracker, scheduler, tasks, conditions.limit, conditions.created
            )
            await executor.run(operations)
            for task in executor.background:
                task.cancel()
            outcome = await _outcome(executor, parameters, tracker, client, scheduler)
            for task in watchers:
                task.cancel()
    except ExceptionGroup as group:
        raise _first(group) from group
    return outcome


async def _outcome(
    executor: Executor, parameters: Parameters, tracker: PodTracker, client: Client, scheduler: SchedulerProcess
) -> Outcome:
    nodes, pods = (await client.list(NODES)).items, (await client.list(PODS)).items
    found = faults(nodes, pods, tracker, executor.must_be_bound)
    if totals(executor.measurements, 0) is None:
        found.append("no pod was bound while metrics were collected")
    bound = sum(bool(pod.spec.node_name) for pod in pods)
    return Outcome(
        params=parameters.taken,
        measurements=executor.measurements,
        peak_bytes=scheduler.usage().peak_bytes,
        bound=bound,
        not_bound=len(pods) - bound,
        deleted=len(tracker.deleted),
        faults=found,
    )


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """The error to tell: the first that is meant for people, or else the first."""
    matching, other = group.split(KoordinatorError)
    chosen = matching or other
    assert chosen is not None
    first = chosen.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first
