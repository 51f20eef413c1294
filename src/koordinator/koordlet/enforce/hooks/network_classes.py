"""TCNetworkQoS: how the outgoing bandwidth of a node is shared out between classes of pods, and capped for single ones.

The device of the default route gets an HTB qdisc. Below its one class, which has the whole bandwidth, there is one for
the node's own and SYSTEM pods' packets, one for latency-sensitive pods and one for best-effort pods, and one for each
pod whose annotation ``koordinator.sh/networkQOS`` caps it. Packets are assigned to pods by address: those of classes by
sets and iptables rules, those with a cap by filters of the qdisc. Pods in the network of the node share its address, so
only the net_cls.classid of their cgroup identifies them (pkg/koordlet/runtimehooks/hooks/tc).

Pure: policy, pods and what the kernel has in, steps out.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address
from types import MappingProxyType
from typing import Final

from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.qos import QoSClass
from koordinator.api.resource_qos import NETWORK_POLICY_TC, ResourceQoSStrategy
from koordinator.koordlet import features
from koordinator.koordlet.enforce.hooks.contexts import Change, HookError, PodContext
from koordinator.koordlet.enforce.hooks.registry import Hook
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.enforce.strategies.network_bandwidth import BITS, class_bandwidth, pod_limits
from koordinator.koordlet.pods.node_pod import NodePod
from koordinator.node import traffic_control as tc

OWNER: Final = "TCNetworkQoS"
WHOLE: Final = 1
SYSTEM: Final = 2
LATENCY_SENSITIVE: Final = 3
BEST_EFFORT: Final = 4
"""Minor numbers of the classes that there always are."""
SETS: Final = {"system_class": SYSTEM, "ls_class": LATENCY_SENSITIVE, "be_class": BEST_EFFORT}
QDISC: Final = tc.Qdisc("htb", tc.MAJOR, SYSTEM)
LOWEST_RATE: Final = 1000
"""Bytes per second: HTB knows no class that is guaranteed nothing."""
_CLASSES: Final = {
    QoSClass.SYSTEM: SYSTEM,
    QoSClass.LSE: LATENCY_SENSITIVE,
    QoSClass.LSR: LATENCY_SENSITIVE,
    QoSClass.LS: LATENCY_SENSITIVE,
    QoSClass.BE: BEST_EFFORT,
}
_PRIORITIES: Final = {SYSTEM: 1, LATENCY_SENSITIVE: 2, BEST_EFFORT: 3}
_FIRST_POD: Final = 16
_MINORS: Final = 0xFFFF
_NO_BANDWIDTHS: Final = MappingProxyType[str, int]({})
_RULES: Final = frozenset(tc.Rule(name, minor) for name, minor in SETS.items())


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the device, and the marking of packets, are to be."""

    classes: Mapping[int, tc.TrafficClass]
    filters: frozenset[tc.SourceFilter | tc.CgroupFilter] = frozenset()
    members: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By set."""
    minors: Mapping[str, int] = field(default_factory=dict)
    """By UID, of pods with a cap."""
    knows_pods: bool = True
    """Whether the kubelet has listed its pods; until then, what is there for pods stays."""
    problems: tuple[str, ...] = ()


def is_enabled(policy: NodeSLOSpec) -> bool:
    """Whether the NodeSLO wants the bandwidth of the node to be shared out by traffic control."""
    strategy, system = policy.resource_qos_strategy, policy.system_strategy
    chosen = strategy.policies.network_policy if strategy is not None and strategy.policies is not None else None
    has_bandwidth = system is not None and system.total_network_bandwidth.value > 0
    return chosen in (None, "", NETWORK_POLICY_TC) and has_bandwidth


def net_class(pod: PodContext, rules: Rules) -> Change | None:
    """net_cls.classid of a pod's cgroup. HookError if its annotation is invalid, wherever it runs.

    A limit of what it receives cannot be enforced on the node's device, and is only checked.
    """
    if rules.policy is None or not is_enabled(rules.policy):
        return None
    limits = pod_limits(pod.annotations)
    if limits.problems:
        raise HookError("; ".join(limits.problems))
    minor = rules.network_classes.get(pod.uid) or (None if limits.egress else _CLASSES.get(pod.qos))
    if minor is None or not rules.has_network_classes:
        return None
    return Change("network QoS of the pod's class, or its own", net_class=tc.MAJOR << 16 | minor)


def want(
    policy: NodeSLOSpec,
    listed: Sequence[NodePod] | None,
    known: Mapping[str, int],
    bandwidths: Mapping[str, int] = _NO_BANDWIDTHS,
    *,
    has_net_cls: bool,
) -> Wanted:
    """For a policy that enables it. ``listed`` are pods that have not finished, None while they are not known;
    ``known`` the minor numbers that pods had before; ``bandwidths`` what a strategy leaves to pods, in bits per second
    by UID, whatever their annotations say; ``has_net_cls``: whether packets can be assigned by cgroup."""
    pods = listed or ()
    system = policy.system_strategy
    total = system.total_network_bandwidth.value if system is not None else 0
    problems: list[str] = []
    classes = _node_classes(policy, total, problems)
    members: dict[str, set[str]] = {name: set() for name in SETS}
    filters: set[tc.SourceFilter | tc.CgroupFilter] = {tc.CgroupFilter()} if has_net_cls else set()
    caps = {pod.uid: limit for pod in pods if pod.qos in _CLASSES and (limit := _cap(pod, bandwidths))}
    minors = assign(caps, known)
    by_minor = {minor: name for name, minor in SETS.items()}
    for pod in sorted(pods, key=lambda pod: pod.uid):
        class_, uid = _CLASSES.get(pod.qos), pod.uid
        if class_ is None:
            continue
        if uid in minors:
            rate = max(min(caps[uid], total) // BITS, LOWEST_RATE)
            classes[minors[uid]] = tc.TrafficClass(minors[uid], WHOLE, rate, rate, _PRIORITIES[class_])
        if pod.pod.spec.host_network:
            # The address is that of the node, and so of everything on it.
            continue
        address = pod.pod.status.pod_ip
        if not _is_ipv4(address):
            # It has none yet, or one of version 6, which neither the sets nor the filters hold.
            continue
        if uid in minors:
            filters.add(tc.SourceFilter(address, minors[uid]))
        else:
            members[by_minor[class_]].add(address)
    return Wanted(
        classes=classes,
        filters=frozenset(filters),
        members={name: frozenset(addresses) for name, addresses in members.items()},
        minors=minors,
        knows_pods=listed is not None,
        problems=tuple(problems),
    )


def assign(uids: Iterable[str], known: Mapping[str, int]) -> dict[str, int]:
    """A minor number for each pod: the one that it had, else one by its UID, so that most are the same after a restart.

    Pods for which none is left have none.
    """
    wanted = sorted(uids)
    minors = {uid: known[uid] for uid in wanted if uid in known}
    taken = set(minors.values())
    size = _MINORS - _FIRST_POD
    for uid in wanted:
        if uid in minors or len(taken) >= size:
            continue
        offset = zlib.crc32(uid.encode()) % size
        while _FIRST_POD + offset in taken:
            offset = (offset + 1) % size
        minors[uid] = _FIRST_POD + offset
        taken.add(minors[uid])
    return minors


def conflict(shaping: tc.Shaping) -> str:
    """Why the device cannot be used: it has the root qdisc of another program; empty if it can be."""
    root = shaping.root
    if root is None or root.major == 0 or root == QDISC:
        return ""
    return f"{shaping.device} has a root qdisc {root.kind} {root.major:x}: that koordlet has not made"


def plan(wanted: Wanted, shaping: tc.Shaping, marking: tc.Marking | None) -> list[tc.Step]:
    """What brings the kernel to what is wanted, in an order in which it can be done. ``marking`` None: it cannot be
    read, and nothing of it is done."""
    steps: list[tc.Step] = []
    if shaping.root != QDISC:
        shaping = tc.Shaping(shaping.device)
        steps.append(tc.Step("add", QDISC))
    found = {class_.minor: class_ for class_ in shaping.classes}
    steps += _filters_to_delete(wanted, shaping)
    if wanted.knows_pods:
        steps += [tc.Step("delete", class_) for minor, class_ in sorted(found.items()) if minor not in wanted.classes]
    for minor, class_ in sorted(wanted.classes.items()):
        if minor not in found:
            steps.append(tc.Step("add", class_))
        elif found[minor] != class_:
            steps.append(tc.Step("change", class_))
    present = {each.means for each in shaping.filters}
    missing = [each for each in wanted.filters if each not in present]
    steps += [tc.Step("add", each) for each in sorted(missing, key=repr)]
    return steps if marking is None else [*steps, *_mark(wanted, marking)]


def removal(shaping: tc.Shaping | None, marking: tc.Marking | None) -> list[tc.Step]:
    steps: list[tc.Step] = []
    if marking is not None:
        steps += [tc.Step("delete", rule) for rule in sorted(marking.rules & _RULES, key=repr)]
        steps += [tc.Step("delete", tc.AddressSet(name)) for name in sorted(marking.sets) if name in SETS]
    if shaping is not None and shaping.root == QDISC:
        steps.append(tc.Step("delete", QDISC))
    return steps


def _filters_to_delete(wanted: Wanted, shaping: tc.Shaping) -> list[tc.Step]:
    kept: set[tc.SourceFilter | tc.CgroupFilter] = set()
    steps: list[tc.Step] = []
    for each in sorted(shaping.filters, key=_place):
        if each.means is not None and each.means in wanted.filters and each.means not in kept:
            kept.add(each.means)
        elif wanted.knows_pods:
            steps.append(tc.Step("delete", each))
    return steps


def _place(each: tc.KernelFilter) -> tuple[int, int]:
    return each.priority, each.handle


def _mark(wanted: Wanted, marking: tc.Marking) -> list[tc.Step]:
    steps = [tc.Step("add", tc.AddressSet(name)) for name in SETS if name not in marking.sets]
    for name in SETS if wanted.knows_pods else ():
        present, addresses = marking.sets.get(name, frozenset()), wanted.members.get(name, frozenset())
        steps += [tc.Step("delete", tc.Member(name, address)) for address in sorted(present - addresses)]
        steps += [tc.Step("add", tc.Member(name, address)) for address in sorted(addresses - present)]
    # A rule that sends our sets elsewhere is of an older version, or a mistake: the last rule would count.
    ours = {rule for rule in marking.rules if rule.set in SETS}
    steps += [tc.Step("delete", rule) for rule in sorted(ours - _RULES, key=repr)]
    return [*steps, *(tc.Step("add", rule) for rule in sorted(_RULES - ours, key=repr))]


def _node_classes(policy: NodeSLOSpec, total: int, problems: list[str]) -> dict[int, tc.TrafficClass]:
    strategy = policy.resource_qos_strategy
    ls_request, ls_limit = _bounds(strategy, "LS", total, problems)
    be_request, be_limit = _bounds(strategy, "BE", total, problems)
    rest = total - ls_request - be_request
    if rest < 0:
        problems.append(
            f"resourceQOSStrategy: networkQOS.egressRequest of lsClass and beClass: {ls_request + be_request} bits per "
            f"second, allowed: up to systemStrategy.totalNetworkBandwidth, which is {total}"
        )
    return {
        WHOLE: _class(WHOLE, total, total, 0, parent=tc.ROOT),
        SYSTEM: _class(SYSTEM, max(rest, 0), total, _PRIORITIES[SYSTEM]),
        LATENCY_SENSITIVE: _class(LATENCY_SENSITIVE, ls_request, ls_limit, _PRIORITIES[LATENCY_SENSITIVE]),
        BEST_EFFORT: _class(BEST_EFFORT, be_request, be_limit, _PRIORITIES[BEST_EFFORT]),
    }


def _class(minor: int, rate: int, ceil: int, priority: int, *, parent: int = WHOLE) -> tc.TrafficClass:
    """Of bits per second."""
    guaranteed = max(rate // BITS, LOWEST_RATE)
    return tc.TrafficClass(minor, parent, guaranteed, max(ceil // BITS, guaranteed), priority)


def _bounds(strategy: ResourceQoSStrategy | None, name: str, total: int, problems: list[str]) -> tuple[int, int]:
    """What is guaranteed and what is the most. Without a limit the request is the limit, and without either, all."""
    given = class_bandwidth(strategy, name, "egress", total)
    problems += given.problems
    limit = given.limit or given.request or total
    return min(given.request, limit), limit


def _cap(pod: NodePod, bandwidths: Mapping[str, int]) -> int:
    """Bits per second that it may send at most, 0 for no limit of its own."""
    limits = pod_limits(pod.pod.metadata.annotations)
    # The hook of net_cls.classid reports it to the author of the pod.
    own = 0 if limits.problems else limits.egress
    return min((limit for limit in (own, bandwidths.get(pod.uid, 0)) if limit), default=0)


def _is_ipv4(address: str) -> bool:
    try:
        IPv4Address(address)
    except AddressValueError:
        return False
    return True


HOOK: Final = Hook(OWNER, features.TC_NETWORK_QOS, pod=net_class)
