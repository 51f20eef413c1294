"""Objects that no sane client writes, before the real plugins: they may wait or fail, and they harm nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from koordinator.api.codec import convert
from koordinator.api.kinds import NODE_METRICS
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import parse_configuration
from koordinator.scheduler.engine.pod_info import make_pod_info
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.row_amounts import CPU
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN
from tests.scheduler.fakes import make_pod
from tests.scheduler.running_scheduler import RunningScheduler, two_nodes

CONFIGURATION = parse_configuration(
    """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: koord-scheduler
    plugins: {multiPoint: {enabled: [{name: LoadAwareScheduling, weight: 1}]}}
""",
    "this test",
)
HUGE = "9223372036854775807"
TERM = {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}, "topologyKey": ""}
PODS: dict[str, dict[str, Any]] = {
    "no containers": {"containers": []},
    "requests below zero": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "-5", "memory": "-1Gi"}}}]},
    "absurd requests": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": HUGE, "memory": HUGE, "x.y/z": HUGE}}}] * 9
    },
    "resources without a name": {"containers": [{"name": "c", "resources": {"requests": {"": "1", "/": "1"}}}]},
    "ports out of range": {
        "containers": [{"name": "c", "ports": [{"hostPort": -1}, {"hostPort": 10**9, "protocol": "?", "hostIP": "?"}]}]
    },
    "an unknown operator": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "", "operator": "Near", "values": ["1"]}]}, {}]
                }
            }
        }
    },
    "bounds that are no numbers": {
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": -(2**31),
                        "preference": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["٣"]}]},
                    }
                ]
            }
        }
    },
    "terms of other pods": {
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]},
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10**9, "podAffinityTerm": TERM}]
            },
        }
    },
    "a spread without a key": {
        "topologySpreadConstraints": [
            {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Perhaps", "minDomains": -3, **TERM},
            {"maxSkew": -1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
        ]
    },
    "tolerations of nothing": {"tolerations": [{"operator": "Maybe", "effect": "?"}, {}]},
    "volumes of nothing": {"volumes": [{"name": ""}, {"name": "v", "persistentVolumeClaim": {"claimName": ""}}]},
    "gates without a name": {"schedulingGates": [{"name": ""}]},
    "claims": {"resourceClaims": [{"name": ""}]},
    "a priority out of range": {"priority": -(2**31), "preemptionPolicy": "Sometimes"},
}


def with_built_in(view: ClusterView) -> Profile:
    (profile,) = build_profiles(CONFIGURATION, BUILT_IN, view)
    return profile


def odd_pod(name: str, spec: dict[str, Any]) -> Pod:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    plain = {"schedulerName": "koord-scheduler", "containers": [{"name": "c"}]}
    return convert({"metadata": metadata, "spec": {**plain, **spec}}, Pod)


def odd_metric(name: str, status: dict[str, Any]) -> NodeMetric:
    return convert({"metadata": {"name": name}, "status": status}, NodeMetric)


def play(story: Callable[[RunningScheduler], Awaitable[None]]) -> RunningScheduler:
    """With the real plugins and the real sums."""

    async def run() -> RunningScheduler:
        fixture = RunningScheduler(two_nodes(), with_built_in, lambda pod, view: make_pod_info(pod))
        async with fixture.running():
            await story(fixture)
        return fixture

    fixture = asyncio.run(run())
    bound = [name for name, _ in fixture.api.bindings]
    assert len(bound) == len(set(bound))
    failures = [sample for metric in fixture.registry.collect() for sample in metric.samples]
    assert [each for each in failures if each.name == "scheduler_plugin_errors_total" and each.value] == []
    return fixture


@pytest.mark.parametrize("case", PODS)
def test_a_pod_that_waits(case: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        fixture.api.store(odd_pod("odd", PODS[case]))
        await fixture.until_idle(2)
        fixture.api.store(make_pod("fine", cpu="100m"))
        await fixture.until_idle(12)
        assert "fine" in fixture.api.placed()

    play(story)


@pytest.mark.parametrize("case", PODS)
def test_a_pod_that_runs(case: str) -> None:
    """The node that it is on may count as full, the other one not."""

    async def story(fixture: RunningScheduler) -> None:
        running = odd_pod("running", PODS[case])
        fixture.api.store(replace(running, spec=replace(running.spec, node_name="b")))
        fixture.api.store(make_pod("fine"))
        await fixture.until_idle(2)
        fixture.api.drop("pods", "default/running")
        fixture.api.store(make_pod("later"))
        await fixture.until_idle(2)
        assert fixture.api.placed().keys() == {"fine", "later"}
        columns = fixture.scheduler.state.view.columns
        requested = {name: int(columns.requested[row, CPU]) for name, row in columns.row_of.items()}
        assert sum(requested.values()) == 2000

    play(story)


USAGE = {"resources": {"cpu": "-1", "memory": HUGE, "": "1"}}
REPORTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "no time": {"nodeMetric": {"nodeUsage": USAGE}},
    "the future": {"updateTime": "9999-12-31T23:59:59Z", "nodeMetric": {"nodeUsage": USAGE}},
    "the year one": {"updateTime": "0001-01-01T00:00:00Z", "nodeMetric": {"nodeUsage": USAGE}},
    "pods of nobody": {
        "updateTime": "2026-01-01T00:00:00Z",
        "nodeMetric": {"nodeUsage": USAGE, "systemUsage": USAGE},
        "podsMetric": [{}, {"name": "p", "namespace": "", "priority": "?", "podUsage": USAGE}] * 2,
    },
    "odd aggregations": {
        "updateTime": "2026-01-01T00:00:00Z",
        "nodeMetric": {"nodeUsage": USAGE, "aggregatedNodeUsages": [{}, {"usage": {"p95": USAGE}, "duration": "-5m"}]},
    },
}


@pytest.mark.parametrize("case", REPORTS)
def test_reports_of_nodes(case: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        for name in ("a", "of-nobody"):
            metric = odd_metric(name, REPORTS[case])
            fixture.scheduler.event_handlers.set_node_object(NODE_METRICS, None, metric)
            fixture.scheduler.event_handlers.set_node_object(NODE_METRICS, metric, metric)
        for number in range(4):
            fixture.api.store(make_pod(f"p{number}"))
        await fixture.until_idle(2)
        assert len(fixture.api.placed()) == 4
        fixture.scheduler.event_handlers.set_node_object(NODE_METRICS, odd_metric("of-nobody", {}), None)

    play(story)


NODES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "less than nothing": {"status": {"allocatable": {"cpu": "-4", "memory": "-1", "pods": "-1"}}},
    "too much": {"status": {"allocatable": dict.fromkeys(("cpu", "memory", "pods", "x.y/z"), HUGE)}},
    "taints without a key": {"spec": {"taints": [{}, {"effect": "Whenever"}]}},
    "images without names": {"status": {"images": [{}, {"names": [""], "sizeBytes": -1}]}},
}


@pytest.mark.parametrize("case", NODES)
def test_nodes(case: str) -> None:
    async def story(fixture: RunningScheduler) -> None:
        node = convert({"metadata": {"name": "odd", "uid": "odd"}, **NODES[case]}, Node)
        fixture.api.store(node)
        for number in range(6):
            fixture.api.store(make_pod(f"p{number}", memory="256Mi"))
        await fixture.until_idle(2)
        assert len(fixture.api.placed()) == 6
        fixture.api.drop("nodes", "odd")

    play(story)
