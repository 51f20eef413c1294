"""Network QoS through Terway: what the daemon terway-qos reads of the node's bandwidth and of each pod.

Terway is Alibaba Cloud's network plugin. Its daemon shares out bandwidth in the kernel by eBPF, and reads two files in
a folder that it watches (pkg/koordlet/runtimehooks/hooks/terwayqos). All bandwidths in these files are bytes per
second; those of the NodeSLO and of annotations are bits per second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from koordinator.api.qos import KubernetesQoS, QoSClass
from koordinator.api.resource_qos import NETWORK_POLICY_TERWAY
from koordinator.koordlet.enforce.strategies.network_bandwidth import BITS, class_bandwidth, pod_limits
from koordinator.koordlet.enforce.strategies.snapshot import Problem, Snapshot, pod_reference
from koordinator.koordlet.pods.node_pod import NodePod

_NET_CLS: Final = "/sys/fs/cgroup/net_cls"
"""Where the daemon, which has the machine's own folders, looks for cgroups."""
_DIRECTIONS: Final[tuple[tuple[str, Literal["egress", "ingress"]], ...]] = (("tx", "egress"), ("rx", "ingress"))
_PRIORITIES: Final = {QoSClass.SYSTEM: 0, QoSClass.LSE: 1, QoSClass.LSR: 1, QoSClass.LS: 1, QoSClass.BE: 2}


@dataclass(frozen=True, slots=True)
class TerwayDecision:
    """The contents of the two files; None: there must be none."""

    node: str | None = None
    pods: str | None = None
    problems: tuple[Problem, ...] = ()


def decide(snapshot: Snapshot) -> TerwayDecision | None:
    """None while the node has no NodeSLO: then everything stays as it is."""
    if snapshot.policy is None:
        return None
    strategy = snapshot.resource_qos
    if strategy is None or strategy.policies is None or strategy.policies.network_policy != NETWORK_POLICY_TERWAY:
        return TerwayDecision()
    problems: list[Problem] = []
    system = snapshot.policy.system_strategy
    total = max(system.total_network_bandwidth.value, 0) if system is not None else 0
    lines = [("hw_tx_bps_max", total // BITS), ("hw_rx_bps_max", total // BITS)]
    for level, name in (("l1", "LS"), ("l2", "BE")):
        for letters, direction in _DIRECTIONS:
            given = class_bandwidth(strategy, name, direction, total)
            problems += map(Problem, given.problems)
            for bound, amount in (("min", given.request), ("max", given.limit)):
                lines.append((f"offline_{level}_{letters}_bps_{bound}", amount // BITS))
    node = "".join(f"{name} {value}\n" for name, value in lines)
    pods = {usage.pod.uid: _pod_entry(usage.pod, problems) for usage in snapshot.pods}
    text = msgspec.json.encode(pods, order="sorted").decode()
    return TerwayDecision(node, text, tuple(problems))


def _pod_entry(pod: NodePod, problems: list[Problem]) -> dict[str, object]:
    metadata = pod.pod.metadata
    limits = pod_limits(metadata.annotations)
    about = pod_reference(metadata.namespace, metadata.name, metadata.uid)
    problems += [Problem(text, about) for text in limits.problems]
    return {
        "podName": metadata.name,
        "podNamespace": metadata.namespace,
        "podUID": metadata.uid,
        "prio": _priority(pod),
        "cgroupDir": f"{_NET_CLS}/{pod.cgroup}",
        "qosConfig": {"ingressBandwidth": limits.ingress // BITS, "egressBandwidth": limits.egress // BITS},
    }


def _priority(pod: NodePod) -> int:
    """0 goes before 1, and that before 2."""
    return _PRIORITIES.get(pod.qos, 2 if pod.kubernetes_qos == KubernetesQoS.BEST_EFFORT else 1)
