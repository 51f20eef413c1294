"""All objects of one control plane, and what a koord-manager has made of them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
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
    Kind,
)
from koordinator.api.kinds import PRIORITY_CLASSES as PRIORITY_CLASS_KIND
from koordinator.api.timestamps import format_time
from koordinator.kube.client import KubeClient
from koordinator.kube.interface import PatchType
from tests.real.manager_cluster import NAMESPACE
from tests.real.manager_process import ManagerProcess
from tests.real.overcommit import configuration, quota_cases
from tests.real.overcommit.node_case import POD_NAMESPACE, Document, NodeCase
from tests.real.overcommit.quota_cases import QuotaCase
from tests.real.overcommit.steps import Step

PRIORITY_CLASSES: Final = {
    "koord-prod": 9500,
    "koord-mid": 7500,
    "koord-batch": 5500,
    "koord-free": 3500,
    **{
        f"at-{value}": value
        for value in (0, 100, 3000, 3999, 4500, 5000, 5999, 6000, 7000, 7999, 8000, 9000, 9999, 10000)
    },
}
"""Those of the ranges of Koordinator, their ends, and what lies between them."""
RUNTIME_CLASSES: Final = {"heavy": {"cpu": "250m", "memory": "120Mi"}, "odd": {"cpu": "0.3", "memory": "7777777"}}
"""With what a pod needs beside its containers."""
_RUNTIME_CLASSES_PATH: Final = "/apis/node.k8s.io/v1/runtimeclasses"
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
_PATIENCE_SECONDS: Final = 120.0
_REQUESTS: Final = re.compile(r"^apiserver_request_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
_WRITES: Final = ("POST", "PUT", "PATCH", "APPLY", "DELETE")

T = TypeVar("T")
Responses = dict[str, Document]
"""By the name of a node or of a quota profile."""


class ClusterObjects:
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
        for name, value in PRIORITY_CLASSES.items():
            await self._client.create(PRIORITY_CLASS_KIND, {"metadata": {"name": name}, "value": value})
        for name, overhead in RUNTIME_CLASSES.items():
            document = {"metadata": {"name": name}, "handler": name, "overhead": {"podFixed": overhead}}
            await self._client.raw("POST", _RUNTIME_CLASSES_PATH, json.dumps(document).encode())
        await self._add_nodes(nodes)
        await self._each(self._add_quota, quotas)

    async def configure(self, step: Step) -> None:
        document = {"metadata": {"name": configuration.NAME}, "data": _plain(step.configuration)}
        if self._is_managed:
            patch = [{"op": "replace", "path": "/data", "value": document["data"]}]
            await self._client.patch(CONFIG_MAPS, configuration.NAME, patch, PatchType.JSON, NAMESPACE)
        else:
            await self._client.create(CONFIG_MAPS, document, NAMESPACE)

    async def enter(self, step: Step) -> None:
        """What comes with a step, beside its configuration."""
        await self._add_nodes(step.arrivals)
        await self._each(self._report, step.reports)

    async def settled(self, running: ManagerProcess) -> Responses:
        """All answers, once every node has its policies and nothing has changed for a while."""
        self._is_managed = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_SECONDS
        before, since = "", loop.time()
        while True:
            assert running.process.poll() is None, f"ended with {running.process.returncode}: {running.log_tail()}"
            revision = await self._revision()
            if revision != before:
                before, since = revision, loop.time()
            elif loop.time() - since >= _QUIET_SECONDS:
                found = {kind: await self._list(kind) for kind in _WATCHED}
                if all(name in found[NODE_SLOS] and name in found[NODE_METRICS] for name in found[NODES]):
                    return _responses(found)
            assert loop.time() < deadline, f"still changing: {running.log_tail()}"
            await asyncio.sleep(_LOOK_SECONDS)

    async def _revision(self) -> str:
        """Of everything that the API server stores."""
        page = decode_any(await self._client.raw("GET", f"{NODES.path()}?limit=1"))
        return str(page["metadata"]["resourceVersion"])

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
        await client.create(NODES, _plain(case.node))
        if "status" in case.node:
            await client.patch(NODES, name, {"status": case.node["status"]}, PatchType.MERGE, subresource="status")
        for one in case.pods:
            pod = {**one.document, "spec": {**one.document["spec"], "nodeName": name}}
            await client.create(PODS, pod, POD_NAMESPACE)
            status, its_name = {"status": {**one.status, "phase": one.phase}}, pod["metadata"]["name"]
            await client.patch(PODS, its_name, status, PatchType.MERGE, POD_NAMESPACE, subresource="status")
            if one.is_ending:
                # No kubelet is there to say that it has ended.
                await client.delete(PODS, its_name, POD_NAMESPACE)
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


def _plain(document: Mapping[str, Any]) -> Document:
    """As JSON has it: texts that are marked in the tests are texts like others to an API server."""
    plain: Document = json.loads(json.dumps(document))
    return plain


def _named(kind: Kind[Any], document: Mapping[str, Any], name: str) -> Document:
    return _complete(kind, {**document, "metadata": {**document["metadata"], "name": name}})


def _responses(found: Mapping[Kind[Any], Mapping[str, Document]]) -> Responses:
    """What a manager decides on, for each node and each quota."""
    responses = {name: _node_response(name, found) for name in found[NODES]}
    quotas = found[ELASTIC_QUOTAS]
    for name, profile in found[ELASTIC_QUOTA_PROFILES].items():
        quota = quotas.get(profile["spec"]["quotaName"], {"metadata": {}, "spec": {}})
        texts = {key: quota["metadata"].get(key, {}) for key in ("labels", "annotations")}
        responses[name] = {"profile": profile["metadata"].get("labels", {}), **texts, "spec": quota["spec"]}
    return responses


def _node_response(name: str, found: Mapping[Kind[Any], Mapping[str, Document]]) -> Document:
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
