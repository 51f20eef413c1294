"""CoreSched: pods of different groups never run on the sibling threads of one core at the same time.

Every process of a group of pods gets the same cookie of the kernel's scheduler. A pod's group is its label
``koordinator.sh/core-sched-group-id``, or the pod itself, and ``-expeller`` is appended for classes that keep others
off their cores. The folders of the classes of Kubernetes may get ``cpu.idle`` beside that (pkg/koordlet/runtimehooks/
hooks/coresched).

Pure: which processes have which cookie in, what is to be done out. Which cookie belongs to which group is read off the
processes in every round, so that a number that the kernel gives to another process does no harm, and a restart forgets
nothing that matters; what was decided before counts only where processes say two things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.labels import CORE_SCHED_GROUP_ID, CORE_SCHED_POLICY
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.qos import KubernetesQoS, QoSClass
from koordinator.api.resource_qos import CPU_POLICY_CORE_SCHED, ResourceQoS
from koordinator.koordlet import features
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.hooks.contexts import Change, HookError, PodContext
from koordinator.koordlet.enforce.hooks.registry import Hook
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.node.core_scheduling import NO_COOKIE
from koordinator.node.kernel_files import SCHED_CORE, SCHED_FEATURES, SCHED_GROUP_IDENTITY, Target

OWNER: Final = "CoreSched"
FEATURE_WORD: Final = "CORE_SCHED"
"""Of sched_features, on older kernels of Anolis OS."""
_EXPELLER: Final = "-expeller"
_EXCLUSIVE: Final = "exclusive"
_NONE: Final = "none"
_SOURCES: Final = 3
"""So many processes are tried that have a group's cookie: the first may have ended."""
_CLASSES: Final = {QoSClass.LSE: "LSR", QoSClass.LSR: "LSR", QoSClass.LS: "LS", QoSClass.BE: "BE"}


@dataclass(frozen=True, slots=True)
class _ClassRule:
    """What the NodeSLO says of a class."""

    is_enabled: bool = False
    is_expeller: bool = False
    is_idle: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """A container that runs. ``group`` None: its processes are to have no cookie; ``cookies`` by process."""

    namespace: str
    pod: str
    uid: str
    name: str
    id: str
    group: str | None
    cookies: Mapping[int, int]
    is_sandbox: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """A new cookie for the processes of a group that has none."""

    group: str
    processes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """The cookie of a group, which the ``sources`` have, for processes that lack it."""

    group: str
    cookie: int
    sources: tuple[int, ...]
    processes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Clear:
    """No cookie for processes that have one."""

    processes: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done; ``cookies`` of the groups that have one."""

    actions: tuple[Create | Share | Clear, ...] = ()
    cookies: Mapping[str, int] = field(default_factory=dict)


def check(pod: PodContext, _: Rules) -> None:
    """HookError for a label that means nothing; the pod is then in a group as without it."""
    policy = pod.labels.get(CORE_SCHED_POLICY, "")
    if policy not in ("", _NONE, _EXCLUSIVE):
        raise HookError(f"metadata.labels[{CORE_SCHED_POLICY}]: {policy!r} is neither {_NONE} nor {_EXCLUSIVE}")


def group_of(pod: PodContext, policy: NodeSLOSpec) -> str | None:
    """The pod's group, which may be the empty one of all pods without the label; None where it has none."""
    rule = _rule_of(pod.qos, pod.kubernetes_qos, _class_rules(policy))
    chosen = pod.labels.get(CORE_SCHED_POLICY, "")
    if not rule.is_enabled or chosen == _NONE:
        return None
    group = pod.uid if chosen == _EXCLUSIVE else pod.labels.get(CORE_SCHED_GROUP_ID, "")
    return f"{group}{_EXPELLER}" if rule.is_expeller else group


def qos_folder(kubernetes_qos: str, rules: Rules) -> Change | None:
    """cpu.idle of the folder of a class of Kubernetes."""
    if rules.policy is None:
        return None
    is_idle = _rule_of(QoSClass.NONE, kubernetes_qos, _class_rules(rules.policy)).is_idle
    return Change(f"the NodeSLO's schedIdle of {kubernetes_qos} pods", cpu_idle=int(is_idle))


def release(rules: Rules) -> Change | None:
    """What the folders get when the gate is off; nothing where the NodeSLO has another policy: a folder that is idle
    then was not made so by the agent."""
    if rules.policy is None or not _class_rules(rules.policy):
        return None
    return Change("the gate CoreSched is off", Priority.RELEASE, cpu_idle=0)


def node(rules: Rules) -> list[DesiredSetting]:
    """The kernel's switches, where it has them. Group identity excludes core scheduling and goes off first."""
    if rules.policy is None or not any(rule.is_enabled for rule in _class_rules(rules.policy).values()):
        return []
    reason = "the NodeSLO's cpuPolicy is coreSched"
    settings: list[DesiredSetting] = []
    if rules.group_identity_switch is not None:
        settings.append(
            DesiredSetting(OWNER, Target(SCHED_GROUP_IDENTITY), 0, f"{reason}, which excludes group identity")
        )
    if rules.group_identity_switch:
        return settings
    if rules.has_core_scheduling_switch:
        settings.append(DesiredSetting(OWNER, Target(SCHED_CORE), 1, reason))
    elif rules.has_core_scheduling_feature:
        settings.append(DesiredSetting(OWNER, Target(SCHED_FEATURES, part=FEATURE_WORD), 1, reason))
    return settings


def plan(containers: Sequence[Container], known: Mapping[str, int], given: AbstractSet[int], why: str) -> Plan:
    """What brings every process to the cookie of its group. ``known`` are the cookies of the groups in the last round,
    ``given`` those that processes have got from the agent, ``why`` the reason for what has no group.

    A group keeps its cookie while one of its processes has it. Else it takes over the first cookie that one of its
    processes has and that is no other group's, as after a restart of the agent. Else it gets a new one.

    Processes without a group lose cookies that the agent has given, and no others: browsers and virtual machine
    monitors make their own. After a restart those are the ones that the sandbox of a pod has: what runs in it makes
    none, and nothing else in a pod can give it one.
    """
    groups: dict[str, dict[int, int]] = {}
    for container in containers:
        if container.group is not None:
            groups.setdefault(container.group, {}).update(container.cookies)
    cookies: dict[str, int] = {}
    for group, members in groups.items():
        cookie = known.get(group)
        # Two groups have got the same one where the kernel used a number again, whose processes had all ended.
        if cookie is not None and cookie in members.values() and cookie not in cookies.values():
            cookies[group] = cookie
    for group, members in groups.items():
        if group not in cookies:
            taken = {NO_COOKIE, *cookies.values()}
            free = (cookie for cookie in members.values() if cookie not in taken)
            if (found := next(free, None)) is not None:
                cookies[group] = found
    actions = [
        action for group, members in groups.items() if (action := _for_group(group, members, cookies.get(group)))
    ]
    return Plan((*actions, *_clear(containers, given, why)), cookies)


def _for_group(group: str, members: Mapping[int, int], cookie: int | None) -> Create | Share | None:
    if not members:
        return None
    if cookie is None:
        return Create(group, tuple(members))
    lacking = tuple(process for process, present in members.items() if present != cookie)
    sources = [process for process, present in members.items() if present == cookie][:_SOURCES]
    return Share(group, cookie, tuple(sources), lacking) if lacking else None


def _clear(containers: Sequence[Container], given: AbstractSet[int], why: str) -> list[Clear]:
    in_sandboxes = {cookie for each in containers if each.is_sandbox for cookie in each.cookies.values()}
    ours = (given | in_sandboxes) - {NO_COOKIE}
    processes = tuple(
        process
        for container in containers
        if container.group is None
        for process, cookie in container.cookies.items()
        if cookie in ours
    )
    return [Clear(processes, why)] if processes else []


def _class_rules(policy: NodeSLOSpec) -> dict[str, _ClassRule]:
    strategy = policy.resource_qos_strategy
    if strategy is None or strategy.policies is None or strategy.policies.cpu_policy != CPU_POLICY_CORE_SCHED:
        return {}
    return {
        "LSR": _class_rule(strategy.lsr_class),
        "LS": _class_rule(strategy.ls_class),
        "BE": _class_rule(strategy.be_class),
    }


def _class_rule(class_: ResourceQoS | None) -> _ClassRule:
    config = class_.cpu_qos if class_ is not None else None
    if config is None:
        return _ClassRule()
    return _ClassRule(bool(config.enable), bool(config.core_expeller), config.sched_idle == 1)


def _rule_of(qos: QoSClass, kubernetes_qos: str, rules: Mapping[str, _ClassRule]) -> _ClassRule:
    none = _ClassRule()
    class_ = _CLASSES.get(qos)
    if class_ is None:
        guaranteed = "LSR" if rules.get("LSR", none).is_enabled else "LS"
        by_kubernetes = {KubernetesQoS.GUARANTEED.value: guaranteed, KubernetesQoS.BEST_EFFORT.value: "BE"}
        class_ = by_kubernetes.get(kubernetes_qos, "LS")
    return rules.get(class_, none)


HOOK: Final = Hook(OWNER, features.CORE_SCHED, pod=check, qos_folder=qos_folder, node=node)
RELEASING: Final = Hook(OWNER, features.CORE_SCHED, qos_folder=lambda _, rules: release(rules))
