"""The explanation of a node: what koord-scheduler, koord-manager and koordlet say of it; see ``explanations``."""

from __future__ import annotations

from koordinator.api.explanations import Explanation, ExplanationPart
from koordinator.api.meta import FreeForm


class NodeResource(ExplanationPart):
    name: str = ""
    allocatable: str = ""
    requested: str = ""
    free: str = ""
    requested_percent: float | None = None


class PodCount(ExplanationPart):
    running: int = 0
    limit: int = 0


class EvaluatedPods(ExplanationPart):
    pods: int = 0
    kinds: int = 0
    would_take: int = 0


class RejectedPods(ExplanationPart):
    """Pods that one plugin keeps off the node for the same reasons."""

    plugin: str = ""
    reasons: list[str] = []
    pods: int = 0
    examples: list[str] = []
    details: list[str] = []


class NamedAmount(ExplanationPart):
    name: str = ""
    amount: int = 0


class Amount(ExplanationPart):
    """How one amount of mid, batch or free capacity was computed, in milli-CPU or bytes."""

    resource: str = ""
    zone: str | None = None
    value: int = 0
    terms: list[NamedAmount] = []
    adjustments: list[NamedAmount] = []
    inputs: dict[str, int] = {}
    policy: str | None = None
    metric_time: str | None = None
    cap: int | None = None
    published: int | None = None
    """The value with its adjustments, as written to the node."""
    reset: str | None = None
    """Why there is none."""
    message: str | None = None
    sentence: str = ""


class Abnormality(ExplanationPart):
    reason: str = ""
    message: str = ""


class LoweredValue(ExplanationPart):
    """A field of the configuration, in percent."""

    name: str = ""
    configured: int = 0
    now: int = 0


class Adaptation(ExplanationPart):
    """How far co-location is taken back on a node, since when and why."""

    level: int = 0
    steps: int = 0
    since: str = ""
    reason: str = ""
    """What the last step was taken for."""
    back_at: str | None = None
    """When one step is taken back, if the node is calm until then; None where none is left to be taken back."""
    lowered: list[LoweredValue] = []


class OvercommitExplanation(ExplanationPart):
    """Why the batch and mid capacity of a node is what it is; koord-manager's part."""

    node: str = ""
    at: str = ""
    amounts: list[Amount] = []
    zones: list[Amount] = []
    abnormal: list[Abnormality] = []
    abnormal_since: str | None = None
    sound_since: str | None = None
    adaptation: Adaptation | None = None
    """None where the node has never been adapted."""
    problems: list[str] = []
    written: str = ""
    error: str | None = None
    """Why koord-manager could not say any of it."""


class Suppression(ExplanationPart):
    """To how much koordlet holds the best-effort pods of a node down, since when and why."""

    policy: str = ""
    cpus: float = 0.0
    since: str = ""
    why: str = ""
    reported: str = ""
    pods: list[str] = []
    used: float = 0.0


class AgentConfiguration(ExplanationPart):
    """Which version of its ConfigMap koordlet goes by; of none, if only one is there that it refused."""

    resource_version: str = ""
    since: str = ""
    refused: str = ""
    """Its resourceVersion and all mistakes in it."""


class MeasuredResource(ExplanationPart):
    """The usage of a node against its thresholds, in percent; 0 is none."""

    name: str = ""
    measured: str = ""
    not_measured_yet: str = ""
    expected: str = ""
    expected_percent: float = 0.0
    threshold: int = 0
    prod_threshold: int = 0
    aggregated_threshold: int = 0


class DeviceAmounts(ExplanationPart):
    type: str = ""
    minor: int = 0
    total: dict[str, str] = {}
    free: dict[str, str] = {}


class ClosedBy(ExplanationPart):
    """A pod for which a plugin gives away nothing on a node."""

    pod: str = ""
    reason: str = ""


class PluginFacts(ExplanationPart):
    """What the terminal draws of the facts that a plugin has about a node; a plugin may have others."""

    faults: list[str] = []
    closed_by: list[ClosedBy] = []
    usage: list[MeasuredResource] | None = None
    devices: list[DeviceAmounts] | None = None
    fault: str = ""
    reported: bool | None = None
    reported_at: str = ""
    expired: bool = False
    error: str = ""


class NodeExplanation(Explanation, kw_only=True):
    """What a node has, who is on it, and who keeps pods off it."""

    node: str
    not_up_to_date: str | None = None
    cordoned: bool = False
    taints: list[str] = []
    conditions: list[str] = []
    resources: list[NodeResource] = []
    pods: PodCount | None = None
    """None where only the API could be queried."""
    nominated_pods: list[str] = []
    plugins: dict[str, FreeForm] = {}
    placed_lately: int = 0
    evaluated: EvaluatedPods = EvaluatedPods()
    rejected_by: list[RejectedPods] = []
    overcommit: OvercommitExplanation | None = None
    suppression: Suppression | None = None
    koordlet_configuration: AgentConfiguration | None = None
    """None where it goes by its command line, as all do without a ConfigMap."""
