"""A cluster to which everything happens that a scheduler sees, with all built plugins; drawn from one number."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import msgspec

from koordinator.api.codec import convert
from koordinator.api.node import Node
from koordinator.api.nodemetric import NodeMetric
from koordinator.api.pod import Pod
from koordinator.scheduler.assembly import build_profiles
from koordinator.scheduler.configuration import parse_configuration
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeColumns
from koordinator.scheduler.engine.decision import Placement
from koordinator.scheduler.engine.engine import Engine
from koordinator.scheduler.engine.evaluation_check import EvaluationCheck
from koordinator.scheduler.engine.pod_info import PodInfo, make_pod_info
from koordinator.scheduler.engine.view import ClusterView
from koordinator.scheduler.plugins.table import BUILT_IN

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_CONFIGURATION: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: koord-scheduler
  plugins:
    multiPoint:
      enabled:
      - {name: LoadAwareScheduling}
  pluginConfig:
  - name: LoadAwareScheduling
    args:
      usageThresholds: {cpu: 65}
"""
_ZONE: Final = "topology.kubernetes.io/zone"


def _labelled(app: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": _ZONE}


def _spread(when: str) -> dict[str, Any]:
    return {**_labelled("web"), "maxSkew": 1, "whenUnsatisfiable": when}


def _affinity(kind: str, *, required: bool) -> dict[str, Any]:
    if required:
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [_labelled("web")]}}
    term = {"weight": 10, "podAffinityTerm": _labelled("web")}
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


SPECS: Final[Sequence[dict[str, Any]]] = (
    {},
    {"nodeSelector": {_ZONE: "a"}},
    {"tolerations": [{"key": "dedicated", "operator": "Exists"}]},
    {"topologySpreadConstraints": [_spread("DoNotSchedule")]},
    {"topologySpreadConstraints": [_spread("ScheduleAnyway")]},
    {"affinity": _affinity("podAffinity", required=False)},
    {"affinity": _affinity("podAntiAffinity", required=False)},
    {"affinity": _affinity("podAntiAffinity", required=True)},
    {"priority": 9500},
)
_REQUESTS: Final = (
    {"cpu": "250m", "memory": "256Mi"},
    {"cpu": "1", "memory": "1Gi"},
    {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "256Mi"},
    {"cpu": "250m", "example.com/late": "1"},
)


class RandomCluster:
    """``differences`` are those of every decision so far from a fresh evaluation, where it ``checks`` them."""

    def __init__(self, seed: int, *, nodes: int, batches: bool = True, checks: bool = True) -> None:
        self._dice = Random(seed)
        view = ClusterView(NodeColumns(), now=START)
        (self.profile,) = build_profiles(parse_configuration(_CONFIGURATION, "tests"), BUILT_IN, view)
        self.state = ClusterState(view)
        self.state.add_event_handlers(self.profile.event_handlers)
        self.engine = Engine(self.profile, self.state, Random(seed), batches=batches)
        self.differences: list[str] = []
        self.check = EvaluationCheck(self.profile, view, self.differences.append)
        if checks:
            self.engine.refresh = self.check.refresh
        self.now = START
        self.placed: list[str] = []
        """Where each pod went, or an empty name, in the order of decisions."""
        self.evaluated = 0
        """Decisions for which there were nodes."""
        self._running: dict[str, Pod] = {}
        self._names = [f"n{number}" for number in range(nodes)]
        for name in self._names:
            self._set_node(name)

    def happen(self) -> None:
        """One event, or one decision."""
        dice = self._dice
        kinds = (self._decide, self._report, self._leave, self._change, self._replace, self._wait)
        dice.choices(kinds, (50, 20, 12, 12, 2, 4))[0]()

    def report(self, name: str) -> None:
        """A NodeMetric arrives."""
        usage = {"cpu": f"{self._dice.randrange(4000)}m", "memory": f"{self._dice.randrange(8)}Gi"}
        document = {
            "metadata": {"name": name},
            "status": {
                "updateTime": self.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "nodeMetric": {"nodeUsage": {"resources": usage}},
            },
        }
        if name in self.state.view.columns.row_of:
            self.state.set_node_object("NodeMetric", name, convert(document, NodeMetric))

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.state.view.now = self.now

    def _decide(self) -> None:
        info = self._pod()
        self.evaluated += bool(self.state.view.columns.row_of)
        result = self.engine.decide(info, self.now)
        if not isinstance(result, Placement):
            self.placed.append("")
            return
        self.placed.append(result.node_name)
        assert self.engine.assume(result) is None
        if self._dice.random() < 0.1:
            self.engine.forget(result)
            return
        bound = msgspec.structs.replace(
            info.pod, spec=msgspec.structs.replace(info.pod.spec, node_name=result.node_name)
        )
        self.state.set_pod(make_pod_info(bound), result.node_name)
        self._running[info.uid] = bound

    def _pod(self) -> PodInfo:
        name, requests = f"p{len(self.placed)}", self._dice.choice(_REQUESTS)
        document = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "labels": {"app": self._dice.choice(("web", "other"))},
            },
            "spec": {
                **self._dice.choice(SPECS),
                "containers": [{"name": "main", "resources": {"requests": requests, "limits": requests}}],
            },
        }
        return make_pod_info(convert(document, Pod))

    def _report(self) -> None:
        self.report(self._dice.choice(self._names))

    def _leave(self) -> None:
        if self._running:
            uid = self._dice.choice(list(self._running))
            del self._running[uid]
            self.state.remove_pod(uid)

    def _change(self) -> None:
        self._set_node(self._dice.choice(self._names))

    def _replace(self) -> None:
        """A node goes, with its pods, and comes back."""
        name = self._dice.choice(self._names)
        for uid in [uid for uid, pod in self._running.items() if pod.spec.node_name == name]:
            del self._running[uid]
            self.state.remove_pod(uid)
        self.state.set_node_object("NodeMetric", name, None)
        self.state.remove_node(name)
        if self._dice.random() < 0.7:
            self._set_node(name)

    def _wait(self) -> None:
        self.pass_time(self._dice.choice((1, 10, 120)))

    def _set_node(self, name: str) -> None:
        dice = self._dice
        tainted = dice.random() < 0.2
        # Mostly first offered when there are pods that request it.
        late = {"example.com/late": "2"} if dice.random() < 0.03 else {}
        document = {
            "metadata": {"name": name, "labels": {_ZONE: dice.choice("abc"), "kubernetes.io/hostname": name}},
            "spec": {
                "unschedulable": dice.random() < 0.1,
                "taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}] if tainted else [],
            },
            "status": {
                "allocatable": {
                    "cpu": str(dice.randrange(2, 9)),
                    "memory": "16Gi",
                    "pods": "20",
                    "kubernetes.io/batch-cpu": str(dice.randrange(4000)),
                    "kubernetes.io/batch-memory": "4Gi",
                    **late,
                }
            },
        }
        self.state.set_node(convert(document, Node))
