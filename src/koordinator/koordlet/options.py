"""The options of koordlet: the command line and the environment, read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from koordinator.base.feature_gates import FeatureGates
from koordinator.base.listen_address import NOWHERE, ListenAddress
from koordinator.koordlet.enforce.hooks.options import HookOptions
from koordinator.koordlet.features import make_features
from koordinator.koordlet.observe.prediction.options import PredictionOptions
from koordinator.node.host import Host


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """How the kubelet is queried. Intervals are in seconds; with one that is not above 0 it never is."""

    address_type: str = "InternalIP"
    sync_interval: float = 10.0
    sync_timeout: float = 3.0
    insecure: bool = False
    """Plain HTTP on the read-only port."""
    read_only_port: int = 10255
    query_configuration: bool = True


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    """When what is measured more rarely is measured, in seconds; feature gates switch all but ``resctrl`` on."""

    pressure_interval: float = 10.0
    cycles_interval: float = 60.0
    cycles_window: float = 10.0
    cold_pages_interval: float = 5.0
    with_resctrl: bool = False
    resctrl_interval: float = 10.0
    storage_interval: float = 1.0
    interference_interval: float = 10.0


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The bounds of the audit log; events above ``verbosity`` are left out, none at 0 or less."""

    verbosity: int = 3
    disk_bytes: int = 16 << 20
    readers: int = 4
    events_per_page: int = 2048


@dataclass(frozen=True, slots=True)
class EnforcementOptions:
    """How often each strategy decides, in seconds (not above 0: never), and what may be done about it."""

    reconcile_interval: float = 1.0
    cpu_suppress_interval: float = 1.0
    cpu_evict_interval: float = 1.0
    memory_evict_interval: float = 1.0
    cpu_evict_cool_down: float = 20.0
    memory_evict_cool_down: float = 4.0
    reassert_interval: float = 60.0
    observe_only: bool = False


@dataclass(frozen=True, slots=True)
class Folders:
    """Where koordlet itself writes, serves and looks. The command line alone has defaults: who makes options without
    it, as tests and simulated nodes do, says where, and so does not meet the koordlet of the machine."""

    forecasts: Path
    """Of the models that forecasts are made of."""
    audit: Path
    pod_resources: Path
    """Where kubelet's pod-resources API is served with devices of koord-scheduler, if its gate is on."""
    devices: Path
    """Where koord-device-daemon writes what it found."""
    samples: Path | None = None
    """Where samples are kept over restarts; None: nowhere."""

    @classmethod
    def under(cls, root: Path) -> Folders:
        """All in one folder; samples are not kept."""
        return cls(root / "forecasts", root / "audit", root / "pod-resources", root / "devices")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line and the environment say. Intervals are in seconds."""

    node_name: str
    host: Host
    listen: ListenAddress
    folders: Folders
    profiles: ListenAddress = NOWHERE
    """Where profiles of koordlet are served."""
    kubeconfig: str = ""
    qps: float = 20.0
    burst: int = 30
    kubelet: KubeletOptions = field(default_factory=KubeletOptions)
    collect_interval: float = 1.0
    node_info_interval: float = 60.0
    topology_interval: float = 3.0
    """Of the Device, too."""
    only_device_files: bool = False
    memory_interval: float = 5.0
    """Of the memory of pods, containers and host applications; at least ``collect_interval`` counts."""
    with_page_cache: bool = False
    collectors: CollectorOptions = field(default_factory=CollectorOptions)
    prediction: PredictionOptions = field(default_factory=PredictionOptions)
    audit: AuditOptions = field(default_factory=AuditOptions)
    enforcement: EnforcementOptions = field(default_factory=EnforcementOptions)
    hooks: HookOptions = field(default_factory=HookOptions)
    report: bool = True
    cleanup: bool = False
    """Take back what is enforced, and end."""
    cache_bytes: int = 100 << 20
    nice: int = 0
    verbosity: int = 0
    features: FeatureGates = field(default_factory=make_features)
    remarks: tuple[str, ...] = ()
    """What of the command line will not have the expected effect, in sentences."""
