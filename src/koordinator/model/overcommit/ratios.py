"""The two ratios of a node: the CPU normalization of its CPU model, and the amplification of its resources."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.cpu_normalization import MAXIMUM_RATIO, MINIMUM_RATIO, CPUModelRatios, CPUNormalizationStrategy
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.api.resource_names import CPU
from koordinator.base.errors import KoordinatorError
from koordinator.model.overcommit.amounts import scaled
from koordinator.model.overcommit.facts import CPUBasicInfo, NodeFacts, TopologyFacts
from koordinator.model.overcommit.policies import CPU_NORMALIZATION, RESOURCE_AMPLIFICATION, Policies, Problem

_UNCHANGED: Final = 1.0
_EPSILON: Final = 0.01
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class RatioError(KoordinatorError, ValueError):
    """A ratio cannot be computed; the annotation with it stays as it is."""


class NodeRatios(Struct, frozen=True):
    """The ratios of one node. ``annotations`` has only those that koord-manager writes; all others stay."""

    cpu_normalization: float = 1.0
    """The factor of the node's batch CPU where it is above 1."""
    annotations: Mapping[str, str | None] = {}
    """Key -> text; None: remove it."""
    problems: tuple[Problem, ...] = ()


def node_ratios(node: NodeFacts, topology: TopologyFacts | None, policies: Policies) -> NodeRatios:
    """The ratios of a node. Without colocation nothing is amplified any more, and the CPU normalization stays as it is.
    Never raises: what cannot be computed is one of the problems."""
    if not policies.capacity.enable:
        removed = {annotation_keys.RESOURCE_AMPLIFICATION_RATIO: None}
        return NodeRatios(annotations=removed if RESOURCE_AMPLIFICATION in policies.plugins else {})
    annotations: dict[str, str | None] = {}
    problems: list[Problem] = []
    computed: float | None = None
    if policies.normalization is not None and CPU_NORMALIZATION in policies.plugins:
        try:
            computed = cpu_normalization(node, topology, policies.normalization)
            annotations[annotation_keys.CPU_NORMALIZATION_RATIO] = _text(computed)
        except RatioError as error:
            problems.append(Problem(CPU_NORMALIZATION, str(error)))
    if policies.amplification is not None and RESOURCE_AMPLIFICATION in policies.plugins:
        try:
            amplified = amplification(policies.amplification, _stored(node) if computed is None else computed)
            annotations[annotation_keys.RESOURCE_AMPLIFICATION_RATIO] = amplification_text(amplified)
        except RatioError as error:
            problems.append(Problem(RESOURCE_AMPLIFICATION, str(error)))
    return NodeRatios(computed or _kept_normalization(node, policies), annotations, tuple(problems))


def cpu_normalization(node: NodeFacts, topology: TopologyFacts | None, policy: CPUNormalizationStrategy) -> float:
    """The ratio of the annotation node.koordinator.sh/cpu-normalization-ratio, in hundredths as written there. Raises
    RatioError."""
    if not _is_normalized(node, policy):
        return _UNCHANGED
    if topology is None:
        raise RatioError("the node has no NodeResourceTopology that names its CPU model")
    if topology.cpu_info is None:
        raise RatioError(topology.cpu_info_problem)
    ratio = model_ratio(topology.cpu_info, policy)
    if not MINIMUM_RATIO <= ratio <= MAXIMUM_RATIO:
        model = topology.cpu_info.cpu_model
        raise RatioError(f"ratio {ratio} for CPU model {model!r} must be from {MINIMUM_RATIO} to {MAXIMUM_RATIO}")
    return round(ratio, 2)


def _is_normalized(node: NodeFacts, policy: CPUNormalizationStrategy) -> bool:
    """The label of the node takes precedence over the configuration."""
    text = node.labels.get(label_keys.CPU_NORMALIZATION_ENABLED)
    if text is None:
        return policy.enable is True
    if text not in _BOOLEANS:
        raise RatioError(f"metadata.labels[{label_keys.CPU_NORMALIZATION_ENABLED}]: {text!r} must be true or false")
    return _BOOLEANS[text]


def model_ratio(info: CPUBasicInfo, policy: CPUNormalizationStrategy) -> float:
    """The ratio that is configured for the CPU model with the features that it has enabled, or else the default.
    Raises RatioError."""
    given = policy.ratio_model.get(info.cpu_model, CPUModelRatios())
    name, ratio = {
        (True, True): ("hyperThreadTurboEnabledRatio", given.hyper_thread_turbo_enabled_ratio),
        (True, False): ("hyperThreadEnabledRatio", given.hyper_thread_enabled_ratio),
        (False, True): ("turboEnabledRatio", given.turbo_enabled_ratio),
        (False, False): ("baseRatio", given.base_ratio),
    }[info.hyper_thread_enabled, info.turbo_enabled]
    if ratio is None:
        ratio = policy.default_ratio
    if ratio is None:
        raise RatioError(f"no {name} is configured for CPU model {info.cpu_model!r}, and no default ratio")
    return ratio


def amplification(policy: ResourceAmplificationStrategy, normalization: float) -> dict[str, float]:
    """Resource -> ratio; empty when nothing is amplified. The ratio of CPU is multiplied by the CPU normalization.
    Raises RatioError."""
    ratios = dict(policy.resource_amplification_ratio) if policy.enable else {}
    configured = ratios.get(CPU, 0.0)
    cpu = (configured if configured > 0 else 1.0) * normalization
    if cpu > 1:
        ratios[CPU] = cpu
    for name, ratio in ratios.items():
        if not (math.isfinite(ratio) and ratio >= 1):
            raise RatioError(f"amplification ratio {ratio} of {name} must be at least 1")
    return ratios


def amplification_text(ratios: Mapping[str, float]) -> str | None:
    """The annotation node.koordinator.sh/resource-amplification-ratio; None: there is none."""
    if not ratios:
        return None
    return "{" + ",".join(f'"{name}":{_text(ratios[name])}' for name in sorted(ratios)) + "}"


def normalized(cpu: int, ratio: float) -> int:
    """Batch CPU multiplied by the CPU normalization, rounded up to whole milli-CPU; a ratio of at most 1 changes
    nothing."""
    return -(-scaled(cpu * 1000, ratio) // 1000) if ratio > 1 else cpu


def is_normalization_due(stored: str | None, wanted: float) -> bool:
    """Whether the annotation alone is due to be written: it is missing, cannot be decoded, or differs by more than a
    hundredth."""
    try:
        before = read_normalization(stored)
    except RatioError:
        return True
    return before is None or before > wanted + _EPSILON or before < wanted - _EPSILON


def read_normalization(text: str | None) -> float | None:
    """The ratio of an annotation; None without one. Raises RatioError unless it is a positive number."""
    if text is None:
        return None
    ratio = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not (math.isfinite(ratio) and ratio > 0):
        key = annotation_keys.CPU_NORMALIZATION_RATIO
        raise RatioError(f"metadata.annotations[{key}]: {text!r} must be a number above 0")
    return ratio


def _stored(node: NodeFacts) -> float:
    """The CPU normalization that the node has now. Raises RatioError where it cannot be read."""
    return read_normalization(node.annotations.get(annotation_keys.CPU_NORMALIZATION_RATIO)) or _UNCHANGED


def _kept_normalization(node: NodeFacts, policies: Policies) -> float:
    """If the configuration of the CPU normalization cannot be decoded, the node keeps its ratio: an error in the
    ConfigMap must not remove batch CPU from every node."""
    if policies.normalization is not None or CPU_NORMALIZATION not in policies.plugins:
        return _UNCHANGED
    try:
        return _stored(node)
    except RatioError:
        return _UNCHANGED


def _text(ratio: float) -> str:
    return f"{ratio:.2f}"
