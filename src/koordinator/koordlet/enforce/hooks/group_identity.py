"""GroupIdentity: threads of latency-sensitive pods go before those of best-effort pods (Anolis OS kernels).

Each pod's cgroup gets a value of ``cpu.bvt_warp_ns`` by the QoS class of its pod, from -1 (gives way) to 2 (goes
before). The kernel excludes it together with core scheduling, so one is switched off before the other is switched on
(pkg/koordlet/runtimehooks/hooks/groupidentity).
"""

from __future__ import annotations

from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api.host_application import HostApplicationSpec
from koordinator.api.nodeslo import NodeSLOSpec
from koordinator.api.qos import KubernetesQoS, QoSClass
from koordinator.api.resource_qos import CPU_POLICY_GROUP_IDENTITY, CPUQoSConfig
from koordinator.koordlet import features
from koordinator.koordlet.enforce.executor.desired_settings import DesiredSetting, Priority
from koordinator.koordlet.enforce.hooks.contexts import Change, ContainerContext, HookError, PodContext, annotation
from koordinator.koordlet.enforce.hooks.registry import Hook, Stage
from koordinator.koordlet.enforce.hooks.rules import Rules
from koordinator.koordlet.enforce.strategies.qos_classes import CLASS_NAMES, class_name, qos_classes
from koordinator.node.kernel_files import SCHED_CORE, SCHED_GROUP_IDENTITY, Target

OWNER: Final = "GroupIdentity"
_NEUTRAL: Final = 0


def pod(pod_: PodContext, rules: Rules) -> Change | None:
    """Of a pod's own cgroup. HookError if its annotation is not valid."""
    values = _values(rules)
    if values is None:
        return None
    of_class = _of_class(class_name(pod_.qos, pod_.kubernetes_qos, values), values)
    config = annotation(pod_, annotation_keys.CPU_QOS, CPUQoSConfig)
    if config is None or pod_.qos is not QoSClass.LS:
        return of_class
    value = of_class.bvt
    if config.group_identity is not None and not -1 <= config.group_identity <= 2:
        where = f"metadata.annotations[{annotation_keys.CPU_QOS}]: groupIdentity"
        raise HookError(f"{where}: {config.group_identity} is not in [-1, 2]")
    if not config.enable:
        value = _NEUTRAL
    elif config.group_identity is not None:
        value = config.group_identity
    return Change(f"the pod's annotation {annotation_keys.CPU_QOS}", Priority.POD, bvt=value)


def container(pod_: PodContext, _: ContainerContext, rules: Rules) -> Change | None:
    """As its pod: a cgroup takes its parent's value over only when it is made."""
    return pod(pod_, rules)


def qos_folder(kubernetes_qos: str, rules: Rules) -> Change | None:
    """Of the folder of a QoS class of Kubernetes, and of pods in it that are not known."""
    values = _values(rules)
    if values is None:
        return None
    if kubernetes_qos == KubernetesQoS.GUARANTEED:
        return Change("the kernel takes no other value for Guaranteed pods as a whole", bvt=_NEUTRAL)
    return _of_class(class_name(QoSClass.NONE, kubernetes_qos, values), values)


def host_application(application: HostApplicationSpec, rules: Rules) -> Change | None:
    values = _values(rules)
    if values is None:
        return None
    return _of_class({str(qos): name for qos, name in CLASS_NAMES.items()}.get(application.qos, ""), values)


def node(rules: Rules) -> list[DesiredSetting]:
    """The kernel's switches, where it has them."""
    if rules.policy is None or not _class_values(rules.policy) or rules.group_identity_switch is None:
        return []
    reason = "a class of pods has a group identity"
    settings = [DesiredSetting(OWNER, Target(SCHED_GROUP_IDENTITY), 1, reason)]
    if rules.has_core_scheduling_switch:
        settings.append(DesiredSetting(OWNER, Target(SCHED_CORE), 0, f"{reason}, which excludes core scheduling"))
    return settings


def release(rules: Rules) -> Change | None:
    if not rules.has_group_identity or rules.group_identity_switch == 0:
        return None
    return Change("the gate GroupIdentity is off", Priority.RELEASE, bvt=_NEUTRAL)


def _class_values(policy: NodeSLOSpec) -> dict[str, int]:
    """Group identities by class of the NodeSLO, of those that have one."""
    strategy = policy.resource_qos_strategy
    chosen = strategy.policies.cpu_policy if strategy is not None and strategy.policies is not None else None
    if chosen not in (None, "", CPU_POLICY_GROUP_IDENTITY):
        return {}
    configs = {name: class_.cpu_qos for name, class_ in qos_classes(strategy).items()}
    return {name: config.group_identity or _NEUTRAL for name, config in configs.items() if config and config.enable}


def _values(rules: Rules) -> dict[str, int] | None:
    """None where nothing is to be written: all is off, and so is the kernel's switch."""
    if rules.policy is None or not rules.has_group_identity:
        return None
    values = _class_values(rules.policy)
    return None if not values and rules.group_identity_switch == 0 else values


def _of_class(class_: str, values: dict[str, int]) -> Change:
    if class_ not in values:
        return Change("no cpuQOS is enabled for it in the NodeSLO", bvt=_NEUTRAL)
    return Change(f"the NodeSLO's cpuQOS of {class_}", bvt=values[class_])


HOOK: Final = Hook(
    OWNER,
    features.GROUP_IDENTITY,
    frozenset({Stage.PRE_RUN_POD_SANDBOX}),
    pod=pod,
    container=container,
    qos_folder=qos_folder,
    host_application=host_application,
    node=node,
)
RELEASING: Final = Hook(
    OWNER,
    features.GROUP_IDENTITY,
    pod=lambda _, rules: release(rules),
    container=lambda _, __, rules: release(rules),
    qos_folder=lambda _, rules: release(rules),
    host_application=lambda _, rules: release(rules),
)
