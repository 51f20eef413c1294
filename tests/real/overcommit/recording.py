"""What one koord-manager makes of all cases: a control plane of its own, the same objects, the same steps."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from koordinator.api.codec import decode_any
from koordinator.api.kinds import (
    CONFIG_MAPS,
    DEVICES,
    ELASTIC_QUOTA_PROFILES,
    ELASTIC_QUOTAS,
    NAMESPACES,
    NODE_METRICS,
    NODE_RESOURCE_TOPOLOGIES,
    NODE_SLOS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Kind,
)
from koordinator.api.timestamps import format_time
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.interface import PatchType
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import NAMESPACE, prepare
from tests.real.manager_process import ManagerProcess, manager
from tests.real.overcommit import configuration, quota_cases
from tests.real.overcommit.node_case import POD_NAMESPACE, Document, NodeCase
from tests.real.overcommit.quota_cases import QuotaCase
from tests.real.overcommit.steps import STEPS, Step

FLAGS: Final = (
    "--enable-leader-election=false",
    "--feature-gates=WebhookFramework=false",
    "--rest-config-qps=1000",
    "--rest-config-burst=1000",
)
_PRIORITY_CLASSES: Final = {"koord-prod": 9500, "koord-mid": 7500, "koord-batch": 5500, "koord-free": 3500}
_WATCHED: Final[tuple[Kind[Any], ...]] = (
    NODES,
    NODE_METRICS,
    NODE_SLOS,
    NODE_RESOURCE_TOPOLOGIES,
    ELASTIC_QUOTAS,
    ELASTIC_QUOTA_PROFILES,
)
_AT_ONCE: Final = 8
_QUIET_SECONDS: Final = 2.2
_LOOK_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 60.0
_REQUESTS: Final = re.compile(r"^apiserver_request_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
_WRITES: Final = ("POST", "PUT", "PATCH", "APPLY", "DELETE")

T = TypeVar("T")
Answers = dict[str, Document]
"""By the name of a node or of a quota profile."""


@dataclass(slots=True)
class Recording:
    """``answers`` by step; ``steady_writes``: requests that changed nothing that had to change, by what they were."""

    answers: dict[str, Answers] = field(default_factory=dict)
    steady_writes: dict[str, int] = field(default_factory=dict)


def record(
    programs: Path, folder: Path, command: Sequence[str], nodes: Sequence[NodeCase], quotas: Sequence[QuotaCase]
) -> Recording:
    """Everything that one program answers."""
    plane = ControlPlane(programs, folder / "cluster")
    plane.start()
    try:
        prepare(plane)
        return asyncio.run(_record(plane, folder, command, nodes, quotas))
    finally:
        plane.stop()


async def _record(
    plane: ControlPlane, folder: Path, command: Sequence[str], nodes: Sequence[NodeCase], quotas: Sequence[QuotaCase]
) -> Recording:
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        world = _World(client)
        await world.fill(nodes, quotas)
        recording = Recording()
        await world.enter(STEPS[0])
        with manager(command, plane.kubeconfig, folder, arguments=FLAGS) as running:
            for step in STEPS:
                if step is not STEPS[0]:
                    await world.enter(step)
                recording.answers[step.name] = await world.settled(running)
                if step.is_steady:
                    recording.steady_writes = await world.steady_writes(running)
        return recording
    finally:
        await client.close()


class _World:
    """All objects of one control plane."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._under_way = asyncio.Semaphore(_AT_ONCE)
        self._nodes: list[NodeCase] = []
        self._is_managed = False

    async def fill(self, nodes: Sequence[NodeCase], quotas: Sequence[QuotaCase]) -> None:
        """Everything but the ConfigMap, which comes with the first step."""
        for name in (POD_NAMESPACE, quota_cases.NAMESPACE):
            await self._client.create(NAMESPACES, {"metadata": {"name": name}})
        for name, value in _PRIORITY_CLASSES.items():
            await self._client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        await self._add_nodes(nodes)
        await self._each(self._add_quota, quotas)

    async def enter(self, step: Step) -> None:
        document = {"metadata": {"name": configuration.NAME}, "data": dict(step.configuration)}
        if self._is_managed:
            patch = [{"op": "replace", "path": "/data", "value": document["data"]}]
            await self._client.patch(CONFIG_MAPS, configuration.NAME, patch, PatchType.JSON, NAMESPACE)
        else:
            await self._client.create(CONFIG_MAPS, document, NAMESPACE)
        await self._add_nodes(step.arrivals)
        await self._each(self._report, step.reports)

    async def settled(self, running: ManagerProcess) -> Answers:
        """All answers, once every node has its policies and nothing has changed for a while."""
        self._is_managed = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_SECONDS
        before: dict[Any, str] = {}
        since = loop.time()
        while True:
            assert running.process.poll() is None, f"ended with {running.process.returncode}: {running.log_tail()}"
            found = {kind: await self._list(kind) for kind in _WATCHED}
            versions = {
                (kind.plural, name): item["metadata"]["resourceVersion"]
                for kind in found
                for name, item in found[kind].items()
            }
            if versions != before:
                before, since = versions, loop.time()
            is_complete = all(name in found[NODE_SLOS] and name in found[NODE_METRICS] for name in found[NODES])
            if is_complete and loop.time() - since >= _QUIET_SECONDS:
                return _answers(found)
            assert loop.time() < deadline, f"still changing: {running.log_tail()}"
            await asyncio.sleep(_LOOK_SECONDS)

    async def steady_writes(self, running: ManagerProcess) -> dict[str, int]:
        """The requests of the program after new reports that say what the last ones said, when it has not written for
        longer than it may leave amounts alone."""
        own = [case for case in self._nodes if case.report is not None and case.report_age == 0.0]
        before = await self._writes()
        await self._each(self._report, own)
        await self.settled(running)
        after = await self._writes()
        after["PATCH nodemetrics/status"] -= len(own)
        return {what: count - before.get(what, 0) for what, count in after.items() if count != before.get(what, 0)}

    async def _writes(self) -> dict[str, int]:
        text = (await self._client.raw("GET", "/metrics")).decode()
        kinds = {kind.plural for kind in _WATCHED}
        writes: dict[str, int] = {}
        for labels, count in _REQUESTS.findall(text):
            label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if label["verb"] in _WRITES and label["resource"] in kinds:
                what = "/".join(filter(None, (f"{label['verb']} {label['resource']}", label["subresource"])))
                writes[what] = writes.get(what, 0) + int(float(count))
        return writes

    async def _add_nodes(self, nodes: Iterable[NodeCase]) -> None:
        added = list(nodes)
        self._nodes += added
        await self._each(self._add_node, added)

    async def _add_node(self, case: NodeCase) -> None:
        client, name = self._client, case.name
        await client.create(NODES, case.node)
        if "status" in case.node:
            await client.patch(NODES, name, {"status": case.node["status"]}, PatchType.MERGE, subresource="status")
        for one in case.pods:
            pod = {**one.document, "spec": {**one.document["spec"], "nodeName": name}}
            await client.create(PODS, pod, POD_NAMESPACE)
            status, its_name = {"status": {"phase": one.phase}}, pod["metadata"]["name"]
            await client.patch(PODS, its_name, status, PatchType.MERGE, POD_NAMESPACE, subresource="status")
        if case.topology is not None:
            await client.create(NODE_RESOURCE_TOPOLOGIES, _named(NODE_RESOURCE_TOPOLOGIES, case.topology, name))
        if case.device is not None:
            await client.create(DEVICES, _named(DEVICES, case.device, name))
        if case.report is not None:
            await self._add_metric(name)
            await self._report(case)

    async def _add_metric(self, name: str) -> None:
        """A manager that runs makes it, so that it does not matter who is faster."""
        if not self._is_managed:
            await self._client.create(NODE_METRICS, _complete(NODE_METRICS, {"metadata": {"name": name}, "spec": {}}))
            return
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while name not in await self._list(NODE_METRICS):
                await asyncio.sleep(_LOOK_SECONDS)

    async def _report(self, case: NodeCase) -> None:
        assert case.report is not None
        status = dict(case.report)
        measured = [
            {
                **{key: one.document["metadata"][key] for key in ("name", "namespace")},
                "podUsage": {"resources": one.used},
            }
            for one in case.pods
            if one.used is not None
        ]
        if measured:
            status["podsMetric"] = [*status.get("podsMetric", []), *measured]
        if case.report_age is not None:
            status["updateTime"] = format_time(datetime.now(UTC) - timedelta(seconds=case.report_age))
        await self._client.patch(NODE_METRICS, case.name, {"status": status}, PatchType.MERGE, subresource="status")

    async def _add_quota(self, case: QuotaCase) -> None:
        client, profile = self._client, case.profile
        if case.quota is not None:
            quota = _named(ELASTIC_QUOTAS, case.quota, profile["spec"]["quotaName"])
            await client.create(ELASTIC_QUOTAS, quota, quota_cases.NAMESPACE)
        await client.create(ELASTIC_QUOTA_PROFILES, _complete(ELASTIC_QUOTA_PROFILES, profile), quota_cases.NAMESPACE)

    async def _list(self, kind: Kind[Any]) -> dict[str, Document]:
        page = decode_any(await self._client.raw("GET", kind.path()))
        return {item["metadata"]["name"]: item for item in page["items"]}

    async def _each(self, work: Callable[[T], Awaitable[None]], subjects: Iterable[T]) -> None:
        async def one(subject: T) -> None:
            async with self._under_way:
                await work(subject)

        async with asyncio.TaskGroup() as tasks:
            for subject in subjects:
                tasks.create_task(one(subject))


def _complete(kind: Kind[Any], document: Mapping[str, Any]) -> Document:
    return {"apiVersion": kind.api_version, "kind": kind.name, **document}


def _named(kind: Kind[Any], document: Mapping[str, Any], name: str) -> Document:
    return _complete(kind, {**document, "metadata": {**document["metadata"], "name": name}})


def _answers(found: Mapping[Kind[Any], Mapping[str, Document]]) -> Answers:
    """What a manager decides on, for each node and each quota."""
    answers = {name: _node_answer(name, found) for name in found[NODES]}
    quotas = found[ELASTIC_QUOTAS]
    for name, profile in found[ELASTIC_QUOTA_PROFILES].items():
        quota = quotas.get(profile["spec"]["quotaName"], {"metadata": {}, "spec": {}})
        texts = {key: quota["metadata"].get(key, {}) for key in ("labels", "annotations")}
        answers[name] = {"profile": profile["metadata"].get("labels", {}), **texts, "spec": quota["spec"]}
    return answers


def _node_answer(name: str, found: Mapping[Kind[Any], Mapping[str, Document]]) -> Document:
    node, topology = found[NODES][name], found[NODE_RESOURCE_TOPOLOGIES].get(name, {"zones": []})
    return {
        **{part: node["status"].get(part, {}) for part in ("allocatable", "capacity")},
        **{part: node["metadata"].get(part, {}) for part in ("annotations", "labels")},
        "slo": found[NODE_SLOS].get(name, {}).get("spec", {}),
        "metric": found[NODE_METRICS].get(name, {}).get("spec", {}),
        "zones": {zone["name"]: _entries(zone) for zone in topology["zones"]},
    }


def _entries(zone: Document) -> Document:
    return {entry["name"]: {**entry, "place": place} for place, entry in enumerate(zone.get("resources", []))}
