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
from koordinator.api.qos import QoSClass
from koordinator.api.resource_qos import CPU_POLICY_CORE_SCHED, CPUQoSConfig
from koordinator.koordlet import features
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, HookError, PodContext
from koordinator.koordlet.enforce.hooks.registry import Hook
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.enforce.strategies.qos_classes import class_name, qos_classes
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


@dataclass(frozen=True, slots=True)
class Container:
    """A container that runs. ``group`` None: its processes are to have no cookie; ``cookies`` by process."""

    of: ContainerContext
    pod: PodContext
    group: str | None
    cookies: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Give:
    """The cookie of a group, which the ``sources`` have, for processes that lack it; a new one for None."""

    group: str
    processes: tuple[int, ...]
    cookie: int | None = None
    sources: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Clear:
    """No cookie for processes that have one."""

    processes: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done; ``cookies`` of the groups that have one."""

    actions: tuple[Give | Clear, ...] = ()
    cookies: Mapping[str, int] = field(default_factory=dict)


def check(pod: PodContext, _: Rules) -> None:
    """HookError for a label that means nothing; the pod is then in a group as without it."""
    policy = pod.labels.get(CORE_SCHED_POLICY, "")
    if policy not in ("", _NONE, _EXCLUSIVE):
        raise HookError(f"metadata.labels[{CORE_SCHED_POLICY}]: {policy!r} is neither {_NONE} nor {_EXCLUSIVE}")


def group_of(pod: PodContext, policy: NodeSLOSpec) -> str | None:
    """The pod's group, which may be the empty one of all pods without the label; None where it has none."""
    config = _config_of(pod.qos, pod.kubernetes_qos, policy)
    chosen = pod.labels.get(CORE_SCHED_POLICY, "")
    if not config.enable or chosen == _NONE:
        return None
    group = pod.uid if chosen == _EXCLUSIVE else pod.labels.get(CORE_SCHED_GROUP_ID, "")
    return f"{group}{_EXPELLER}" if config.core_expeller else group


def qos_folder(kubernetes_qos: str, rules: Rules) -> Change | None:
    if rules.policy is None:
        return None
    is_idle = _config_of(QoSClass.NONE, kubernetes_qos, rules.policy).sched_idle == 1
    return Change(f"the NodeSLO's schedIdle of {kubernetes_qos} pods", cpu_idle=int(is_idle))


def release(rules: Rules) -> Change | None:
    """What the folders get when the gate is off; nothing where the NodeSLO has another policy: a folder that is idle
    then was not made so by the agent."""
    if rules.policy is None or not _configs(rules.policy):
        return None
    return Change("the gate CoreSched is off", Priority.RELEASE, cpu_idle=0)


def node(rules: Rules) -> list[DesiredSetting]:
    """The kernel's switches, where it has them. Group identity excludes core scheduling and goes off first."""
    if rules.policy is None or not any(config.enable for config in _configs(rules.policy).values()):
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
    given_out = [_give(group, members, cookies.get(group)) for group, members in groups.items()]
    actions = [action for action in given_out if action.processes]
    return Plan((*actions, *_clear(containers, given, why)), cookies)


def _give(group: str, members: Mapping[int, int], cookie: int | None) -> Give:
    lacking = tuple(process for process, present in members.items() if present != cookie)
    sources = [process for process, present in members.items() if present == cookie]
    return Give(group, lacking, cookie, tuple(sources[:_SOURCES]))


def _clear(containers: Sequence[Container], given: AbstractSet[int], why: str) -> list[Clear]:
    in_sandboxes = {cookie for each in containers if each.of.is_sandbox for cookie in each.cookies.values()}
    ours = (given | in_sandboxes) - {NO_COOKIE}
    processes = tuple(
        process
        for container in containers
        if container.group is None
        for process, cookie in container.cookies.items()
        if cookie in ours
    )
    return [Clear(processes, why)] if processes else []


def _configs(policy: NodeSLOSpec) -> dict[str, CPUQoSConfig]:
    """By class of the NodeSLO; none where it has another policy."""
    strategy = policy.resource_qos_strategy
    if strategy is None or strategy.policies is None or strategy.policies.cpu_policy != CPU_POLICY_CORE_SCHED:
        return {}
    return {name: class_.cpu_qos or CPUQoSConfig() for name, class_ in qos_classes(strategy).items()}


def _config_of(qos: QoSClass, kubernetes_qos: str, policy: NodeSLOSpec) -> CPUQoSConfig:
    configs = _configs(policy)
    enabled = [name for name, config in configs.items() if config.enable]
    return configs.get(class_name(qos, kubernetes_qos, enabled)) or CPUQoSConfig()


HOOK: Final = Hook(OWNER, features.CORE_SCHED, pod=check, qos_folder=qos_folder, node=node)
RELEASING: Final = Hook(OWNER, features.CORE_SCHED, qos_folder=lambda _, rules: release(rules))
