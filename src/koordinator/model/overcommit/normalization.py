"""The two ratios that a node is given: what a core of its CPU model is worth, and by how much its resources are
stretched."""

from __future__ import annotations

import math
import re
from typing import Final

from koordinator.api import annotations as annotation_keys
from koordinator.api import labels as label_keys
from koordinator.api.cpu_normalization import MAXIMUM_RATIO, MINIMUM_RATIO, CPUModelRatios, CPUNormalizationStrategy
from koordinator.api.resource_amplification import ResourceAmplificationStrategy
from koordinator.api.resource_names import CPU
from koordinator.base.errors import KoordinatorError
from koordinator.model.overcommit.node_facts import NodeFacts
from koordinator.model.overcommit.topology_facts import CPUBasicInfo, TopologyFacts

NO_NORMALIZATION: Final = "1.00"
_EPSILON: Final = 0.01
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class RatioError(KoordinatorError, ValueError):
    """A ratio cannot be worked out; the annotation that says it stays as it is."""


def normalization_text(node: NodeFacts, topology: TopologyFacts | None, policy: CPUNormalizationStrategy) -> str:
    """The annotation node.koordinator.sh/cpu-normalization-ratio. Raises RatioError."""
    if not _is_normalized(node, policy):
        return NO_NORMALIZATION
    if topology is None:
        raise RatioError("the node has no NodeResourceTopology that names its CPU model")
    if topology.cpu_info is None:
        raise RatioError(topology.cpu_info_problem)
    ratio = model_ratio(topology.cpu_info, policy)
    if not MINIMUM_RATIO <= ratio <= MAXIMUM_RATIO:
        model = topology.cpu_info.cpu_model
        raise RatioError(f"ratio {ratio} for CPU model {model!r} must be from {MINIMUM_RATIO} to {MAXIMUM_RATIO}")
    return f"{ratio:.2f}"


def _is_normalized(node: NodeFacts, policy: CPUNormalizationStrategy) -> bool:
    """The node's label goes before the configuration."""
    text = node.labels.get(label_keys.CPU_NORMALIZATION_ENABLED)
    if text is None:
        return policy.enable is True
    if text not in _BOOLEANS:
        raise RatioError(f"metadata.labels[{label_keys.CPU_NORMALIZATION_ENABLED}]: {text!r} must be true or false")
    return _BOOLEANS[text]


def model_ratio(info: CPUBasicInfo, policy: CPUNormalizationStrategy) -> float:
    """What is configured for the model with what is switched on in it, else the default. Raises RatioError."""
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


def read_normalization(text: str | None) -> float | None:
    """The ratio that an annotation says; None without one. Raises RatioError unless it is a positive number."""
    if text is None:
        return None
    ratio = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not (math.isfinite(ratio) and ratio > 0):
        key = annotation_keys.CPU_NORMALIZATION_RATIO
        raise RatioError(f"metadata.annotations[{key}]: {text!r} must be a number above 0")
    return ratio


def is_normalization_due(old: str | None, new: str | None) -> bool:
    """Whether the annotation is to be written for its own sake: it comes, goes, cannot be read, or moves by more than
    a hundredth."""
    try:
        before = read_normalization(old)
    except RatioError:
        return True
    try:
        after = read_normalization(new)
    except RatioError:
        return False
    if before is None or after is None:
        return before is not after
    return before > after + _EPSILON or before < after - _EPSILON


def amplification_text(policy: ResourceAmplificationStrategy, normalization: str | None) -> str | None:
    """The annotation node.koordinator.sh/resource-amplification-ratio; None when nothing is stretched. The ratio of
    CPU is multiplied by what a core is worth. Raises RatioError."""
    ratios = dict(policy.resource_amplification_ratio) if policy.enable else {}
    configured = ratios.get(CPU, 0.0)
    cpu = (configured if configured > 0 else 1.0) * (read_normalization(normalization) or 1.0)
    if cpu > 1:
        ratios[CPU] = cpu
    for name, ratio in ratios.items():
        if not (math.isfinite(ratio) and ratio >= 1):
            raise RatioError(f"amplification ratio {ratio} of {name} must be at least 1")
    if not ratios:
        return None
    return "{" + ",".join(f'"{name}":{ratios[name]:.2f}' for name in sorted(ratios)) + "}"
