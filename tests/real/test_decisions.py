"""Our results and scores against those of the Go original, pod by pod, on random clusters on a real API server.

The original schedules; before each pod is created our engine says, on the same cluster, which nodes pass and what they
score. Nodes that pass, every plugin's weighted score, and the message of a pod that fits nowhere must be the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from koordinator.api.codec import decode, encode
from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, NODE_METRICS, NODES, PODS
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.pod import Pod
from koordinator.kube.client import KubeClient
from koordinator.kube.connect import ClientOptions, connect
from koordinator.kube.errors import ApiStatusError
from koordinator.kube.interface import PatchType
from koordinator.scheduler.cycle.failure_report import scheduled_condition
from koordinator.scheduler.engine.decision import Placement, Rejection
from tests.real.control_plane import ControlPlane
from tests.real.decisions.clusters import make_metric, make_node, make_pod, make_running_pod, preferred_nodes
from tests.real.decisions.original import Said, original_scheduler, read_log
from tests.real.decisions.ours import Decision, decide
from tests.real.programs import RealPrograms
from tests.real.scheduler_configuration import write_configuration

NODE_COUNT, RUNNING, PROBES = 24, 60, 60
PROFILE = """\
schedulerName: koord-scheduler
plugins:
  preFilter: {enabled: [{name: SchedulingHint}]}
  filter: {enabled: [{name: LoadAwareScheduling}]}
  preScore: {enabled: [{name: NodeResourcesFitPlus}, {name: ScarceResourceAvoidance}]}
  score:
    enabled:
      - {name: LoadAwareScheduling, weight: 1}
      - {name: NodeResourcesFitPlus, weight: 2}
      - {name: ScarceResourceAvoidance, weight: 3}
  reserve: {enabled: [{name: LoadAwareScheduling}]}
pluginConfig:
  - name: LoadAwareScheduling
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: LoadAwareSchedulingArgs
      filterExpiredNodeMetrics: false
      usageThresholds: {cpu: 65, memory: 95}
  - name: NodeResourcesFitPlus
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitPlusArgs
      resources:
        cpu: {type: LeastAllocated, weight: 2}
        memory: {type: MostAllocated, weight: 1}
        example.com/widget: {type: MostAllocated, weight: 3}
  - name: ScarceResourceAvoidance
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: ScarceResourceAvoidanceArgs
      resources: [example.com/widget]
"""


async def build(client: KubeClient, random: Random) -> None:
    for document in custom_resource_definitions():
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, document)
    nodes = [make_node(random, number) for number in range(NODE_COUNT)]
    for node in nodes:
        await client.create(NODES, node)
        name, status = node["metadata"]["name"], {"status": node["status"]}
        await client.patch(NODES, name, status, PatchType.MERGE, subresource="status")
    for node in nodes:
        metric = make_metric(random, node)
        await _until_served(client, metric)
        status = {"status": metric["status"]}
        await client.patch(NODE_METRICS, metric["metadata"]["name"], status, PatchType.MERGE, subresource="status")
    for number in range(RUNNING):
        await client.create(PODS, make_running_pod(random, number, nodes), "default")


async def _until_served(client: KubeClient, metric: dict[str, Any]) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await client.create(NODE_METRICS, metric)
            except ApiStatusError as error:
                if not error.is_not_found:
                    raise
                await asyncio.sleep(0.1)
            else:
                return


async def until_decided(client: KubeClient, name: str) -> Pod:
    async with asyncio.timeout(30):
        while True:
            pod = await client.get(PODS, name, "default")
            condition = scheduled_condition(pod)
            if pod.spec.node_name or (condition is not None and condition.status == "False"):
                return pod
            await asyncio.sleep(0.02)


async def compare(plane: ControlPlane, configuration: Path, random: Random) -> dict[str, tuple[Decision, Pod]]:
    """Pod -> what we would have done, and what became of it."""
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        found: dict[str, tuple[Decision, Pod]] = {}
        for number in range(PROBES):
            name = f"probe-{number:03d}"
            document = {"apiVersion": "v1", "kind": "Pod", **make_pod(random, name)}
            as_admitted = await client.raw("POST", f"{PODS.path('default')}?dryRun=All", encode(document))
            decision = await decide(client, configuration, decode(as_admitted, Pod))
            await client.create(PODS, document, "default")
            found[name] = decision, await until_decided(client, name)
            if not found[name][1].spec.node_name:
                # It would be tried again while later pods are compared.
                await client.delete(PODS, name, "default", grace_period_seconds=0)
        return found
    finally:
        await client.close()


async def prepare(plane: ControlPlane, random: Random) -> None:
    client = await connect(ClientOptions(kubeconfig=str(plane.kubeconfig), qps=0))
    try:
        await build(client, random)
    finally:
        await client.close()


def differences(name: str, ours: Decision, pod: Pod, theirs: Said) -> list[str]:
    """Where the two disagree about one pod, in words."""
    found = []
    if pod.spec.node_name:
        if isinstance(ours.result, Rejection):
            return [f"{name} went to {pod.spec.node_name}; we refuse: {ours.result.message}"]
        if pod.spec.node_name not in ours.scores:
            found.append(f"{name} went to {pod.spec.node_name}, which we reject")
        if pod.spec.node_name in preferred_nodes(pod):
            # The original looks at no other node then, and scores none.
            chosen = ours.result.node_name
            return found + ([f"{name} went to {pod.spec.node_name}, ours to {chosen}"] * (chosen != pod.spec.node_name))
        # The requests of the whole pod count in Filter and once the pod is there, but not in its score.
        of_containers = {"NodeResourcesFit", "NodeResourcesFitPlus"} if pod.spec.resources is not None else set()
        expected = theirs.scores or {pod.spec.node_name: {}}
        if set(expected) != set(ours.scores):
            found.append(f"{name}: nodes {sorted(set(expected) ^ set(ours.scores))} pass for one of us only")
        for node in sorted(set(theirs.scores) & set(ours.scores)):
            for plugin in sorted({*theirs.scores[node], *ours.scores[node]} - of_containers):
                one, other = theirs.scores[node].get(plugin, 0), ours.scores[node].get(plugin, 0)
                if one != other:
                    found.append(f"{name} on {node}: {plugin} gives {one}, ours {other}")
        return found
    condition = scheduled_condition(pod)
    assert condition is not None
    if isinstance(ours.result, Placement):
        return [f"{name}: {condition.message}; ours goes to {ours.result.node_name}"]
    # We have nothing to say about resource claims of a pod that has none.
    message = condition.message.replace("no new claims to deallocate, ", "")
    if message != ours.result.message:
        found.append(f"{name}: {message!r}, ours {ours.result.message!r}")
    counts = {key: len(nodes) for key, nodes in theirs.failures.items()}
    # The diagnosis leaves out the nodes that PreFilter leaves out; the message counts them.
    filtered = [
        each for each in ours.result.rejected if not each.reasons[0].startswith("node(s) didn't satisfy plugin(s)")
    ]
    if counts and counts != {(each.plugin, ", ".join(each.reasons)): each.count for each in filtered}:
        found.append(f"{name}: nodes by plugin and reason {counts}, ours {ours.result.rejected}")
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_results_reasons_and_scores_are_the_original_s(
    seed: int, plane: ControlPlane, real_programs: RealPrograms, tmp_path: Path
) -> None:
    random, log = Random(seed), tmp_path / "original.log"
    asyncio.run(prepare(plane, random))
    configuration = write_configuration(
        tmp_path / "scheduler.yaml",
        kubeconfig=plane.kubeconfig,
        profile=yaml.safe_load(PROFILE),
        podInitialBackoffSeconds=60,
        podMaxBackoffSeconds=60,
    )
    with original_scheduler(real_programs, plane, configuration, log):
        found = asyncio.run(compare(plane, configuration, random))
    said = read_log(log.read_text(errors="replace"))
    wrong = [
        line
        for name, (decision, pod) in found.items()
        for line in differences(name, decision, pod, said.get(name, Said()))
    ]
    assert not wrong, "\n".join(wrong)
    outcomes = Counter("placed" if pod.spec.node_name else "refused" for _, pod in found.values())
    assert outcomes["placed"] >= 10
    assert outcomes["refused"] >= 2
    assert sum(len(each.scores) for each in said.values()) > 150
    scored = {plugin for each in said.values() for row in each.scores.values() for plugin in row if row[plugin]}
    assert {"ImageLocality", "NodeResourcesFitPlus", "ScarceResourceAvoidance"} <= scored
