"""What one koord-manager makes of all cases: a control plane of its own, the same objects, the same steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pytest

from koordinator.kube.connect import ClientOptions, connect
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import prepare
from tests.real.manager_process import OURS, manager
from tests.real.overcommit.cluster_objects import ClusterObjects, Responses
from tests.real.overcommit.node_case import NodeCase
from tests.real.overcommit.quota_cases import QuotaCase
from tests.real.overcommit.steps import STEPS, Step
from tests.real.programs import RealPrograms

FLAGS: Final = (
    "--enable-leader-election=false",
    # The second is on by default in ours alone.
    "--feature-gates=WebhookFramework=false,EnableSyncGPUSharedResource=true",
    "--rest-config-qps=1000",
    "--rest-config-burst=1000",
)


@dataclass(slots=True)
class Recording:
    """``answers`` by step; ``steady_writes``: requests that changed nothing that had to change, by what they were."""

    responses: dict[str, Responses] = field(default_factory=dict)
    steady_writes: dict[str, int] = field(default_factory=dict)


def record_both(
    programs: RealPrograms,
    folder: Path,
    nodes: Sequence[NodeCase],
    quotas: Sequence[QuotaCase] = (),
    steps: Sequence[Step] = STEPS,
) -> tuple[Recording, Recording]:
    """Ours and the original's, side by side. Each has a process, since most of the time goes into writing objects."""
    original = programs.original / "koord-manager"
    if not original.is_file():
        pytest.skip(f"the original's koord-manager is absent: put it into {programs.original}")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        ours, theirs = (
            processes.submit(record, programs.kubernetes, folder / name, command, nodes, quotas, steps)
            for name, command in (("ours", OURS), ("original", (str(original),)))
        )
        return ours.result(), theirs.result()


def record(
    programs: Path,
    folder: Path,
    command: Sequence[str],
    nodes: Sequence[NodeCase],
    quotas: Sequence[QuotaCase],
    steps: Sequence[Step],
) -> Recording:
    """All responses of one program."""
    with ControlPlane(programs, folder / "cluster") as plane:
        prepare(plane)
        return asyncio.run(_record(plane, folder, command, nodes, quotas, steps))


async def _record(
    plane: ControlPlane,
    folder: Path,
    command: Sequence[str],
    nodes: Sequence[NodeCase],
    quotas: Sequence[QuotaCase],
    steps: Sequence[Step],
) -> Recording:
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        fixture = ClusterObjects(client)
        await fixture.fill(nodes, quotas)
        recording = Recording()
        await fixture.configure(steps[0])
        await fixture.enter(steps[0])
        with manager(command, plane.kubeconfig, folder, arguments=FLAGS) as running:
            for step in steps:
                if step is not steps[0]:
                    await fixture.configure(step)
                    # ConfigMaps and Nodes are two watches: which of them a program hears first is chance, and what it
                    # writes to a new node by the configuration of before may stay.
                    await fixture.settled(running)
                    await fixture.enter(step)
                recording.responses[step.name] = await fixture.settled(running)
                if step.is_steady:
                    recording.steady_writes = await fixture.steady_writes(running)
        return recording
    finally:
        await client.close()
