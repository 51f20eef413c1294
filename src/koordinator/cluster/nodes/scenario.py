"""What a simulated cluster consists of and how it behaves: a small YAML document, decoded strictly.

Every mistake becomes a ConfigurationError that names the field, the value and what is allowed: a scenario is written by
hand, and a misspelt field that is silently ignored costs its author an hour.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import yaml

from koordinator.api.duration import GoDuration
from koordinator.api.meta import WireStruct
from koordinator.api.quantity import Quantity
from koordinator.base.errors import ConfigurationError
from koordinator.cluster.nodes.scenario_checks import check_scenario, decode_scenario

Range = tuple[float, float]
"""Each pod or node draws its own value, evenly, between the two."""

DurationRange = tuple[GoDuration, GoDuration]


def _minutes(minutes: float) -> GoDuration:
    return GoDuration(minutes=minutes)


def _seconds(seconds: float) -> GoDuration:
    return GoDuration(seconds=seconds)


class Reserved(WireStruct):
    """What a node keeps for itself: allocatable is capacity less this, as with kubelet's reserved resources."""

    cpu: Quantity = Quantity.parse("200m")
    memory: Quantity = Quantity.parse("512Mi")


class TaintSpec(WireStruct):
    key: str = ""
    value: str = ""
    effect: str = "NoSchedule"


class Image(WireStruct):
    """A container image that is on the nodes already."""

    name: str = ""
    size: Quantity = Quantity.parse("100Mi")


class GPUs(WireStruct):
    """The GPUs of each node of a group."""

    count: int = 0
    model: str = "NVIDIA A100-SXM4-80GB"
    memory: Quantity = Quantity.parse("80Gi")


class NodeGroup(WireStruct):
    """Nodes that are alike. ``name_pattern`` may hold ``{group}`` and must hold ``{index}``."""

    name: str = ""
    count: int = 1
    name_pattern: str = "{group}-{index}"
    instance_type: str = ""
    cpu: Quantity = Quantity.parse("8")
    memory: Quantity = Quantity.parse("32Gi")
    ephemeral_storage: Quantity = Quantity.parse("100Gi")
    pods: int = 110
    resources: dict[str, Quantity] = {}
    """Extended resources, such as ``example.com/gpu: 8``."""
    gpus: GPUs = GPUs()
    """They are in the Device of the node, from which koord-manager computes its resources."""
    reserved: Reserved = Reserved()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: list[TaintSpec] = []
    images: list[Image] = []


class LatencySensitiveUsage(WireStruct):
    """Services: a daily wave far below what they request, with noise and spikes. Percentages are of the request."""

    mean_percent: Range = (12.0, 18.0)
    daily_amplitude_percent: float = 35.0
    """How far the wave goes above and below its mean, as a share of the mean."""
    peak_hour: Range = (13.0, 16.0)
    """Hour of the day (UTC) at which load is highest."""
    noise_percent: float = 10.0
    spikes_per_day: float = 3.0
    spike_factor: Range = (1.5, 3.0)
    spike_duration: DurationRange = (_minutes(1), _minutes(5))
    memory_percent: Range = (40.0, 70.0)


class BatchUsage(WireStruct):
    """Batch, mid and free priority: as much as they may have. Percentages are of the limit, or else of the request."""

    cpu_percent: Range = (85.0, 100.0)
    noise_percent: float = 5.0
    memory_percent: Range = (50.0, 85.0)
    memory_ramp: DurationRange = (_minutes(2), _minutes(10))
    """How long memory takes to grow to its plateau."""
    run_time: DurationRange = (_minutes(5), _minutes(15))
    """How long a pod with restartPolicy Never or OnFailure runs when no annotation says so."""
    node_limit_percent: float = 100.0
    """Batch pods are squeezed so that the CPU usage of a node stays at or below this share of its capacity."""


class BestEffortUsage(WireStruct):
    """Pods that request nothing."""

    cpu_milli: Range = (5.0, 50.0)
    memory_mebibytes: Range = (16.0, 128.0)


class SystemUsage(WireStruct):
    """What a node uses outside its pods."""

    cpu_milli: float = 100.0
    cpu_percent: float = 1.0
    memory_mebibytes: float = 400.0
    memory_percent: float = 1.0
    noise_percent: float = 10.0


class UsageModel(WireStruct):
    latency_sensitive: LatencySensitiveUsage = LatencySensitiveUsage()
    batch: BatchUsage = BatchUsage()
    best_effort: BestEffortUsage = BestEffortUsage()
    system: SystemUsage = SystemUsage()


class PlannedFault(WireStruct):
    """Something that goes wrong with what some nodes report. Times are simulated."""

    fault: str = ""
    """One of ``fault_kinds.Fault``."""
    nodes: list[str] = []
    """Names, or patterns such as ``small-*``."""
    after: GoDuration = _seconds(0)
    """The start of the program."""
    lasts: GoDuration | None = None
    """Unset: to the end."""


class Timing(WireStruct):
    """Durations. Those of leases and heartbeats are real; all others are simulated and pass ``speed`` times as fast."""

    lease_duration: GoDuration = _seconds(40)
    lease_interval: GoDuration = _seconds(20)
    heartbeat_interval: GoDuration = _minutes(5)
    sample_interval: GoDuration = _seconds(15)
    report_interval: GoDuration = _seconds(60)
    pod_start: DurationRange = (_seconds(1), _seconds(3))
    pod_stop: DurationRange = (_seconds(1), _seconds(2))
    speed: float = 1.0
    """Simulated seconds per real second."""
    start_hour: float | None = None
    """The hour of the day (UTC) at which the simulation starts; unset, that of the real clock."""


class Scenario(WireStruct):
    """The whole document."""

    name: str = "default"
    """Marks the nodes as belonging together: nodes of the same name that the scenario no longer has are removed."""
    seed: int = 0
    region: str = "simulated"
    zones: list[str] = msgspec.field(default_factory=lambda: ["zone-a"])
    node_groups: list[NodeGroup] = []
    usage: UsageModel = UsageModel()
    timing: Timing = Timing()
    faults: list[PlannedFault] = []
    """Of several for one node at one moment, the first counts."""

    @property
    def total_nodes(self) -> int:
        return sum(group.count for group in self.node_groups)


def default_scenario() -> Scenario:
    """The scenario that is used when none is named."""
    text = resources.files("koordinator.cluster.nodes").joinpath("scenarios", "default.yaml").read_text("utf-8")
    return parse_scenario(text, "default.yaml")


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file. Raises ConfigurationError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError("--scenario", str(path), f"a readable YAML file ({error})") from error
    return parse_scenario(text, path.name)


def parse_scenario(text: str, source: str) -> Scenario:
    """Decode YAML; ``source`` names the document in error messages. Raises ConfigurationError."""
    try:
        document: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(source, "the document", f"YAML ({error})") from error
    scenario = decode_scenario(document, Scenario, source)
    check_scenario(scenario)
    return scenario


def scale(scenario: Scenario, nodes: int) -> Scenario:
    """The same scenario with ``nodes`` nodes, its groups in the same proportion (largest remainder)."""
    total = scenario.total_nodes
    exact = [group.count * nodes / total for group in scenario.node_groups]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: nodes - sum(counts)]:
        counts[i] += 1
    groups = [
        msgspec.structs.replace(group, count=count) for group, count in zip(scenario.node_groups, counts, strict=True)
    ]
    return msgspec.structs.replace(scenario, node_groups=groups)


def with_gpu_nodes(scenario: Scenario, count: int) -> Scenario:
    """The same scenario and ``count`` nodes with eight GPUs each, named ``gpu-0`` and so on."""
    if not count:
        return scenario
    group = NodeGroup(
        name="gpu",
        count=count,
        instance_type="sim.gpu",
        cpu=Quantity.parse("64"),
        memory=Quantity.parse("512Gi"),
        gpus=GPUs(count=8),
    )
    return msgspec.structs.replace(scenario, node_groups=[*scenario.node_groups, group])
