"""The declaration of a gang: read from the labels and annotations of its pods, from a PodGroup, or from a pod group of
a Workload of scheduling.k8s.io, to which pods refer in ``spec.workloadRef``.

An invalid value is replaced by its default and named among the declaration's ``problems``. Only a missing or invalid
minimum number of members, for which there is no default, leaves the gang undeclared. The network topology requirements
are in the annotation ``gang.scheduling.koordinator.sh/network-topology-spec``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.annotations import GANG_NETWORK_TOPOLOGY_SPEC
from koordinator.api.codec import DecodeError, decode
from koordinator.api.generic_workload import GenericWorkload
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
from koordinator.base.durations import DurationError, parse_duration

MUST_GATHER: Final = "MustGather"
PREFER_GATHER: Final = "PreferGather"
STRATEGIES: Final = (MUST_GATHER, PREFER_GATHER)


class GatherRule(msgspec.Struct, frozen=True, rename="camel"):
    """``pod_count_multiple``: the number of members in each domain of the layer must be a multiple of it; values up to
    1 have no effect."""

    layer: str = ""
    strategy: str = ""
    pod_count_multiple: int = 0


class TopologySpec(msgspec.Struct, frozen=True, rename="camel"):
    """The rules by layer. Without rules, members are gathered in the smallest domain that holds them."""

    gather_strategy: tuple[GatherRule, ...] | None = ()

    @property
    def rules(self) -> tuple[GatherRule, ...]:
        return self.gather_strategy or ()


def topology_spec_of(annotations: Mapping[str, str], problems: list[str]) -> TopologySpec | None:
    """The requirements in the annotation; None if it is absent, or cannot be decoded, which is added to
    ``problems``."""
    text = annotations.get(GANG_NETWORK_TOPOLOGY_SPEC)
    if not text:
        return None
    if text.strip() == "null":
        return TopologySpec()
    try:
        spec = decode(text, TopologySpec)
    except DecodeError as error:
        problems.append(f"{GANG_NETWORK_TOPOLOGY_SPEC}: {error}; the network does not matter to the gang")
        return None
    problems += [
        f"{GANG_NETWORK_TOPOLOGY_SPEC}: the strategy of layer {rule.layer!r} is {rule.strategy!r}; expected is "
        f"{' or '.join(STRATEGIES)}; {PREFER_GATHER} counts"
        for rule in spec.rules
        if rule.strategy not in STRATEGIES
    ]
    return spec


MEMBERS: Final = "Members"
WHOLE: Final = "Whole"
GANG_POLICIES: Final = (MEMBERS, WHOLE)
"""What leaves when a member of a gang has to: it alone, or the gang. The values of ``gangPolicy``."""

GENERIC_WORKLOAD: Final = "GenericWorkload"
"""The feature gate with which programs read Workloads, which takes further rights."""
NOT_READ: Final = f"Workloads are not read (feature gate {GENERIC_WORKLOAD}); its pods are placed one by one"

STRICT: Final = "Strict"
NON_STRICT: Final = "NonStrict"
MODES: Final = (STRICT, NON_STRICT)
ONLY_WAITING: Final = "only-waiting"
WAITING_AND_RUNNING: Final = "waiting-and-running"
ONCE_SATISFIED: Final = "once-satisfied"
MATCH_POLICIES: Final = (ONLY_WAITING, WAITING_AND_RUNNING, ONCE_SATISFIED)

_INT32: Final = range(-(2**31), 2**31)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class Defaults:
    """The values of fields that a gang does not declare; from the plugin's arguments."""

    wait_seconds: float = 600.0
    match_policy: str = ONCE_SATISFIED


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a PodGroup or pod declares of its gang. ``group``: the ids of the gangs that are placed together, sorted,
    the gang's own included."""

    min_member: int
    total: int
    mode: str
    match_policy: str
    wait_seconds: float
    group: tuple[str, ...]
    network_topology: TopologySpec | None = None
    """The gang's network topology requirements; None if it has none."""
    problems: tuple[str, ...] = ()
    """Invalid values, each with the field, the value, what is allowed and the value used instead."""

    @property
    def group_id(self) -> str:
        return ",".join(self.group)

    @property
    def needs_others(self) -> bool:
        """Whether members are useless without others. Those of a gang whose minimum is 1, such as pods that are placed
        one by one, are not, unless other gangs are placed with it."""
        return self.min_member > 1 or len(self.group) > 1


def gang_name_of(pod: Pod) -> str:
    """The name of the pod's gang in its namespace; empty for a pod that is in no gang."""
    labels, reference = pod.metadata.labels, pod.spec.workload_ref
    named = (
        labels.get(label_keys.POD_GROUP)
        or labels.get(label_keys.DEPRECATED_POD_GROUP_NAME)
        or pod.metadata.annotations.get(annotation_keys.GANG_NAME, "")
    )
    if named or reference is None:
        return named
    # No PodGroup can have such a name.
    parts = reference.name, reference.pod_group, reference.pod_group_replica_key
    return ":".join(part for part in parts if part)


def workload_of(pod: Pod) -> str:
    """``namespace/name`` of the Workload whose pod group is the pod's gang; empty where there is none, or a label or
    annotation names another gang."""
    reference = pod.spec.workload_ref
    if reference is None or not gang_name_of(pod).startswith(f"{reference.name}:"):
        return ""
    return f"{pod.metadata.namespace}/{reference.name}"


def gang_id_of(pod: Pod) -> str:
    """``namespace/name`` of the pod's gang; empty for a pod that is in no gang."""
    name = gang_name_of(pod)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def declared_by_pod(pod: Pod, gang_id: str, defaults: Defaults) -> Declaration | str:
    """The declaration in the pod's labels and annotations; or, as a text, why its minimum number of members cannot be
    read."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    key, text = label_keys.DEPRECATED_POD_GROUP_MIN_AVAILABLE, labels.get(label_keys.DEPRECATED_POD_GROUP_MIN_AVAILABLE)
    if not text:
        key, text = annotation_keys.GANG_MIN_AVAILABLE, annotations.get(annotation_keys.GANG_MIN_AVAILABLE)
    if text is None:
        return f"{key} is missing; expected is a number of pods"
    min_member = _int32(text)
    if min_member is None:
        return f"{key} is {text!r}; expected is a number of pods"
    problems: list[str] = []
    wait_seconds = _waiting_time(annotations, defaults, problems)
    return _declaration(pod.metadata, gang_id, min_member, wait_seconds, defaults, problems)


def declared_by_pod_group(pod_group: PodGroup, defaults: Defaults) -> Declaration:
    """The declaration of the gang that has the PodGroup's name."""
    seconds = pod_group.spec.schedule_timeout_seconds
    wait_seconds = float(seconds) if seconds is not None and seconds > 0 else defaults.wait_seconds
    metadata = pod_group.metadata
    return _declaration(metadata, metadata.key, pod_group.spec.min_member, wait_seconds, defaults, [])


def declared_by_workload(
    workload: GenericWorkload | None, pod: Pod, gang_id: str, defaults: Defaults
) -> Declaration | str:
    """The declaration of the pod group that ``pod`` refers to; or, as a text, what is missing."""
    reference = pod.spec.workload_ref
    assert reference is not None, "workload_of is not empty"
    if workload is None:
        return f"there is no Workload {workload_of(pod)}"
    group = next((each for each in workload.spec.pod_groups if each.name == reference.pod_group), None)
    if group is None:
        return f"the Workload {workload_of(pod)} has no pod group {reference.pod_group}"
    gang = group.policy.gang
    if gang is None:
        return placed_one_by_one(gang_id, defaults)
    # As upstream's plugin GangScheduling: members that run already count.
    wait = defaults.wait_seconds
    return Declaration(gang.min_count, gang.min_count, STRICT, WAITING_AND_RUNNING, wait, (gang_id,))


def placed_one_by_one(gang_id: str, defaults: Defaults, *problems: str) -> Declaration:
    """The declaration of pods that wait for no others."""
    return Declaration(1, 1, NON_STRICT, WAITING_AND_RUNNING, defaults.wait_seconds, (gang_id,), None, problems)


def _declaration(
    metadata: ObjectMeta,
    gang_id: str,
    min_member: int,
    wait_seconds: float,
    defaults: Defaults,
    problems: list[str],
) -> Declaration:
    annotations = metadata.annotations
    total = _total(annotations, min_member, problems)
    mode = _one_of(annotations, (annotation_keys.GANG_MODE,), MODES, STRICT, problems)
    policies = (annotation_keys.GANG_MATCH_POLICY, annotation_keys.GANG_MATCH_POLICY_ALIAS)
    match_policy = _one_of(annotations, policies, MATCH_POLICIES, defaults.match_policy, problems)
    group = _group(annotations, gang_id, problems)
    topology = topology_spec_of(annotations, problems)
    return Declaration(min_member, total, mode, match_policy, wait_seconds, group, topology, tuple(problems))


def _waiting_time(annotations: Mapping[str, str], defaults: Defaults, problems: list[str]) -> float:
    text = annotations.get(annotation_keys.GANG_WAITING_TIME)
    if not text:
        return defaults.wait_seconds
    try:
        seconds = parse_duration(text).total_seconds()
    except DurationError as error:
        problems.append(f"{annotation_keys.GANG_WAITING_TIME}: {error}; {defaults.wait_seconds:g}s counts")
        return defaults.wait_seconds
    if seconds < 0:
        problems.append(f"{annotation_keys.GANG_WAITING_TIME} is {text!r}, negative; {defaults.wait_seconds:g}s counts")
    return seconds if seconds > 0 else defaults.wait_seconds


def _total(annotations: Mapping[str, str], min_member: int, problems: list[str]) -> int:
    text = annotations.get(annotation_keys.GANG_TOTAL_NUMBER)
    if not text:
        return min_member
    total = _int32(text)
    if total is None or total < min_member:
        problems.append(
            f"{annotation_keys.GANG_TOTAL_NUMBER} is {text!r}; expected is a number not below the minimum "
            f"{min_member}, which counts"
        )
        return min_member
    return total


def _one_of(
    annotations: Mapping[str, str], keys: tuple[str, ...], allowed: tuple[str, ...], default: str, problems: list[str]
) -> str:
    """The value of the first of ``keys`` that is set, if allowed; otherwise ``default``."""
    key = next((key for key in keys if annotations.get(key)), None)
    if key is None:
        return default
    value = annotations[key]
    if value in allowed:
        return value
    problems.append(f"{key} is {value!r}; expected is {' or '.join(allowed)}; {default} counts")
    return default


def _group(annotations: Mapping[str, str], gang_id: str, problems: list[str]) -> tuple[str, ...]:
    text = annotations.get(annotation_keys.GANG_GROUPS)
    if not text:
        return (gang_id,)
    try:
        named = decode(text, list[str])
    except DecodeError as error:
        problems.append(
            f"{annotation_keys.GANG_GROUPS} is {text!r}: {error}; expected is a JSON list of namespace/name; the gang "
            "is placed by itself"
        )
        return (gang_id,)
    if named and gang_id not in named:
        problems.append(f"{annotation_keys.GANG_GROUPS} leaves out the gang itself, {gang_id}; it is placed with them")
    return tuple(sorted({*named, gang_id}))


def _int32(text: str) -> int | None:
    """The text as Go's ParseInt parses it, in 32 bits; None if it is not a number."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT32 else None
