"""Every broken object that a real API server lets in, all at once: healthy pods are placed by our scheduler, and beside
it by the Go original's as far as that gets."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from koordinator.api.kinds import DEVICES, NAMESPACES, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, NODES, PODS, Kind
from koordinator.api.timestamps import format_time
from koordinator.kube.client import KubeClient
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.event_series import EVENTS_V1
from koordinator.kube.interface import PatchType
from tests.real.decisions.original import original_scheduler
from tests.real.programs import RealPrograms
from tests.real.quota_runs import connected, our_scheduler, prepare
from tests.real.scheduler_configuration import write_configuration
from tests.real.side_by_side import Who, both, two_planes
from tests.real.watched import watching
from tests.real_world.broken_documents import REPORTED_AT
from tests.real_world.broken_objects import BROKEN_NAMESPACE, BROKEN_OBJECTS, BrokenObject

_PROFILE: Final = Path(__file__).parents[1] / "scheduler/configuration/chart_profile.yaml"
_OF_NODES: Final = (NODES, NODE_METRICS, NODE_RESOURCE_TOPOLOGIES, DEVICES)
_GOOD: Final = "node-0"
_PLACED_WITHIN: Final = 60.0
_GIVEN_UP_WITHIN: Final = 20.0


async def put_broken(client: KubeClient, objects: list[BrokenObject]) -> set[str]:
    """Create each of them that the server accepts; the names of those. What is about a node gets a node of its own for
    the objects of its kind that have the same number."""
    numbers: Counter[str] = Counter()
    accepted: set[str] = set()
    for broken in objects:
        document = broken.copy()
        document["metadata"]["name"] = broken.name
        if broken.kind in _OF_NODES:
            document["metadata"]["name"] = f"broken-{numbers[broken.kind.name]}"
            numbers[broken.kind.name] += 1
            await _add_node(client, document["metadata"]["name"])
        try:
            await _put(client, broken.kind, document)
        except ApiStatusError as error:
            if error.code not in (400, 422):
                raise
        else:
            accepted.add(broken.name)
    return accepted


async def _add_node(client: KubeClient, name: str) -> None:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    body = {"metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": amounts}}
    try:
        await client.create(NODES, body)
    except ApiStatusError as error:
        if error.code != 409:
            raise


async def _put(client: KubeClient, kind: Kind[Any], document: dict[str, Any]) -> None:
    name, namespace = document["metadata"]["name"], document["metadata"].get("namespace", "")
    if kind is NODES:
        metadata = {"annotations": document["metadata"]["annotations"]}
        await client.patch(NODES, name, {"metadata": metadata}, PatchType.MERGE)
        return
    status = document.pop("status", None)
    if kind is NODE_METRICS and status["updateTime"] == REPORTED_AT:
        # Nobody looks at a report that is too old.
        status["updateTime"] = format_time(datetime.now(UTC))
    await client.create(kind, document, namespace)
    if status is not None:
        await client.patch(kind, name, {"status": status}, PatchType.MERGE, namespace, subresource="status")
    if kind is PODS:
        document["metadata"]["name"] += "-bound"
        document["spec"]["nodeName"] = "broken-0"
        await client.create(PODS, document, namespace)


def _healthy(name: str, node: str = "") -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "64Mi"}
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "koord-scheduler",
            "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
            "containers": [{"name": "main", "image": "pause", "resources": {"requests": requests}}],
        },
    }


HEALTHY: Final = (_healthy("confined", _GOOD), *(_healthy(f"free-{number}") for number in range(3)))
_NAMES: Final = tuple(pod["metadata"]["name"] for pod in HEALTHY)


async def placed_beside(
    who: Who, programs: RealPrograms, folder: Path, plane: Any, objects: list[BrokenObject]
) -> tuple[set[str], set[str], str]:
    """Which broken objects were accepted, which healthy pods were placed, and what the scheduler wrote."""
    (profile,) = yaml.safe_load(_PROFILE.read_text())["profiles"]
    log = folder / f"{who}.log"
    async with connected(plane) as client:
        await prepare(client)
        await client.create(NAMESPACES, {"metadata": {"name": BROKEN_NAMESPACE}})
        accepted = await put_broken(client, objects)
        configuration = write_configuration(folder / f"{who}.yaml", kubeconfig=plane.kubeconfig, profile=profile)
        running = (
            our_scheduler(plane, configuration, log)
            if who == "ours"
            else original_scheduler(programs, plane, configuration, log)
        )
        with running:
            async with watching(client, (PODS, "default"), (EVENTS_V1, "default")) as watched:
                for pod in HEALTHY:
                    await client.create(PODS, pod, "default")

                def placed() -> set[str]:
                    return {each.metadata.name for each in watched.list(PODS) if each.spec.node_name}

                await watched.until(
                    lambda: placed() >= set(_NAMES), _PLACED_WITHIN if who == "ours" else _GIVEN_UP_WITHIN
                )
                return accepted, placed(), log.read_text()


def run_beside(
    programs: RealPrograms, folder: Path, objects: list[BrokenObject]
) -> tuple[tuple[set[str], set[str], str], tuple[set[str], set[str], str]]:
    with two_planes(programs, folder) as planes:
        return asyncio.run(both(lambda who: placed_beside(who, programs, folder, planes[who], objects)))


def test_healthy_pods_are_placed_beside_all_broken_objects(real_programs: RealPrograms, tmp_path: Path) -> None:
    (accepted, ours, log), (_, theirs, _) = run_beside(real_programs, tmp_path, list(BROKEN_OBJECTS))
    assert {"metric-below-zero", "metric-far-below-zero", "node-ratio-huge", "topology-cpu-huge"} <= accepted
    assert ours == set(_NAMES), log[-3000:]
    assert theirs <= ours


def test_a_usage_below_zero_stops_pods_of_the_original_that_may_go_there(
    real_programs: RealPrograms, tmp_path: Path
) -> None:
    below_zero = [each for each in BROKEN_OBJECTS if each.name == "metric-below-zero"]
    (_, ours, _), (_, theirs, log) = run_beside(real_programs, tmp_path, below_zero)
    assert ours == set(_NAMES)
    assert (theirs, "invalid score" in log) == ({"confined"}, True)
