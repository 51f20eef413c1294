"""The options of koordlet, with the flags that set them: the Go original's, with its defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from koordinator.base.feature_gates import FeatureGates
from koordinator.base.listen_address import NOWHERE, ListenAddress
from koordinator.base.option_flags import group, integer, interval, number, seconds, switch, switches, text
from koordinator.koordlet.enforce.hooks.options import HOOKS, HookOptions
from koordinator.koordlet.features import make_features
from koordinator.koordlet.observe.prediction.options import PREDICTION, PredictionOptions
from koordinator.kube.secure_options import TITLE as SECURE
from koordinator.kube.secure_options import SecureOptions
from koordinator.node.host import Host

CLUSTER: Final = "Cluster"
KUBELET: Final = "Kubelet"
MEASURING: Final = "Measuring"
MEASURING_RARELY: Final = "Measuring more rarely"
ENFORCING: Final = "Enforcing quality of service"
AUDIT: Final = "Audit log"
FOLDERS: Final = "Folders of the machine"
SERVING: Final = "Serving and logging"
TITLES: Final = (
    CLUSTER,
    KUBELET,
    MEASURING,
    MEASURING_RARELY,
    PREDICTION,
    ENFORCING,
    HOOKS,
    AUDIT,
    FOLDERS,
    SERVING,
    SECURE,
)
"""The headings of the help text, in their order."""


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """How the kubelet is queried. Intervals are in seconds; with one that is not above 0 it never is."""

    address_type: str = text(
        "kubelet-preferred-address-type", "InternalIP", "Which address of the Node the kubelet is queried at."
    )
    sync_interval: float = seconds("kubelet-sync-interval", 10.0, "How often the kubelet is queried for its pods.")
    sync_timeout: float = seconds("kubelet-sync-timeout", 3.0, "How long a response of the kubelet may take.")
    insecure: bool = switch("kubelet-insecure-tls", False, "Query the kubelet's read-only port, over plain HTTP.")
    read_only_port: int = integer(
        "kubelet-read-only-port", 10255, "Kubelet's read-only port.", minimum=1, maximum=65535
    )
    query_configuration: bool = switch(
        "disable-query-kubelet-config", True, "Do not query the kubelet's configuration (/configz).", negated=True
    )


@dataclass(frozen=True, slots=True)
class CollectorOptions:
    """When what is measured more rarely is measured, in seconds; feature gates switch all but ``resctrl`` on."""

    pressure_interval: float = interval(
        "psi-collector-interval", 10.0, "How often the pressure of pods is read (gate PSICollector)."
    )
    interference_interval: float = interval(
        "interference-interval",
        10.0,
        "How often pods are compared with what is normal for them (gate InterferenceDetection).",
    )
    cycles_interval: float = interval(
        "cpi-collector-interval", 60.0, "How often cycles and instructions are counted (gate CPICollector)."
    )
    cycles_window: float = interval("collect-cpi-timewindow", 10.0, "For how long they are counted.")
    cold_pages_interval: float = interval(
        "coldpage-collector-interval", 5.0, "How often cold pages are read (gate ColdPageCollector)."
    )
    with_resctrl: bool = switch(
        "enable-resctrl-collector", False, "Measure caches and memory bandwidth (gate ResctrlCollector, too)."
    )
    resctrl_interval: float = interval("resctrl-collector-interval", 10.0, "How often they are measured.")
    storage_interval: float = interval(
        "collect-node-storage-info-interval", 1.0, "How often disks and mounts are read (gate BlkIOReconcile)."
    )


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The bounds of the audit log; events above ``verbosity`` are left out, none at 0 or less."""

    verbosity: int = integer("audit-verbose", 3, "How much is written, from 1 up; 0 or less writes everything.")
    disk_bytes: int = integer("audit-max-disk-space-mb", 16, "MiB that it may take.", minimum=1, unit=1 << 20)
    readers: int = integer("audit-max-concurrent-readers", 4, "How many may page through /events at once.", minimum=1)
    events_per_page: int = integer(
        "audit-max-events-limit", 2048, "How many events one page of /events may have.", minimum=1
    )


_LONGEST: Final = 2**31 - 1
"""Seconds: who writes more means never, and it would not fit a time."""


@dataclass(frozen=True, slots=True)
class EnforcementOptions:
    """How often each strategy decides, in seconds (not above 0: never), and what may be done about it."""

    reconcile_interval: float = integer(
        "reconcile-interval-seconds",
        1,
        "How often CPU burst, memory, disks, caches and sysctls are reconciled, in seconds.",
        maximum=_LONGEST,
    )
    cpu_suppress_interval: float = integer(
        "cpu-suppress-interval-seconds", 1, "How often best-effort pods get a new budget, in seconds.", maximum=_LONGEST
    )
    cpu_evict_interval: float = integer(
        "cpu-evict-interval-seconds", 1, "How often evictions for CPU are decided, in seconds.", maximum=_LONGEST
    )
    memory_evict_interval: float = integer(
        "memory-evict-interval-seconds", 1, "How often evictions for memory are decided, in seconds.", maximum=_LONGEST
    )
    cpu_evict_cool_down: float = integer(
        "cpu-evict-cool-time-seconds", 20, "The pause after an eviction for CPU, in seconds.", maximum=_LONGEST
    )
    memory_evict_cool_down: float = integer(
        "memory-evict-cool-time-seconds", 4, "The pause after an eviction for memory, in seconds.", maximum=_LONGEST
    )
    reassert_interval: float = integer(
        "resource-force-update-seconds",
        60,
        "After how long a file is read again that was written already, in seconds.",
        maximum=_LONGEST,
    )
    observe_only: bool = switch(
        "observe-only",
        False,
        "Change nothing on this node and answer no hooks: log what would be written and who would be evicted."
        " What is measured is reported as usual.",
    )


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
    """Where the backend of the metric cache keeps samples over restarts; None: there is none."""

    @classmethod
    def under(cls, root: Path) -> Folders:
        """All in one folder; samples are not kept."""
        return cls(root / "forecasts", root / "audit", root / "pod-resources", root / "devices")


@dataclass(frozen=True, slots=True)
class WatchedConfiguration:
    """The ConfigMap whose flags take effect while koordlet runs."""

    name: str
    namespace: str
    read: ReadOptions = field(compare=False)


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line and the environment say. Intervals are in seconds."""

    node_name: str
    host: Host
    listen: ListenAddress
    folders: Folders
    profiles: ListenAddress = NOWHERE
    """Where profiles of koordlet are served."""
    secure: SecureOptions = group(SECURE, SecureOptions)
    kubeconfig: str = text(
        "kubeconfig",
        "",
        "How to reach the cluster; without it, KUBECONFIG, ~/.kube/config or the service account of the pod.",
        placeholder="file",
        under=CLUSTER,
    )
    qps: float = number("kube-api-qps", 20.0, "Requests a second; 0 or less: no limit.", under=CLUSTER)
    burst: int = integer("kube-api-burst", 30, "Requests at once.", under=CLUSTER)
    report: bool = switch("enable-node-metric-report", True, "Report the NodeMetric.", under=CLUSTER)
    kubelet: KubeletOptions = group(KUBELET, KubeletOptions)
    collect_interval: float = interval(
        "collect-res-used-interval", 1.0, "How often CPU and memory are measured.", under=MEASURING
    )
    node_info_interval: float = interval(
        "collect-node-cpu-info-interval", 60.0, "How often the topology of the CPUs is read.", under=MEASURING
    )
    topology_interval: float = seconds(
        "node-topology-sync-interval",
        3.0,
        "How often the NodeResourceTopology and the Device are brought up to date; 0 or less: never.",
        under=MEASURING,
    )
    only_device_files: bool = switch(
        "xpu-enforce-collect-from-device-infos",
        False,
        "Report no GPU that is in no file of --xpu-device-infos-dir.",
        under=MEASURING,
    )
    memory_interval: float = 5.0
    """Of the memory of pods, containers and host applications; at least ``collect_interval`` counts."""
    with_page_cache: bool = switch(
        "enable-pagecache-collector",
        False,
        "Measure memory with page cache, too, for policies that select it.",
        under=MEASURING,
    )
    cache_bytes: int = integer(
        "tsdb-max-bytes",
        100 << 20,
        "What all samples may take in memory; where more would be needed, every second one is kept.",
        minimum=1 << 20,
        under=MEASURING,
    )
    backend: str = "memory"
    """The name of the backend of the metric cache, which keeps the samples in its folder."""
    collectors: CollectorOptions = group(MEASURING_RARELY, CollectorOptions)
    prediction: PredictionOptions = group(PREDICTION, PredictionOptions)
    enforcement: EnforcementOptions = group(ENFORCING, EnforcementOptions)
    cleanup: bool = switch(
        "cleanup",
        False,
        "Take back what koordlet enforces on this node, and end. To remove koordlet, stop it and run this with the"
        " same flags.",
        under=ENFORCING,
    )
    plugins: Mapping[str, bool] = switches(
        "qos-extension-plugins",
        "Which of what other packages add is on, by the name of the entry point; what is not named is.",
        under=ENFORCING,
    )
    hooks: HookOptions = group(HOOKS, HookOptions)
    audit: AuditOptions = group(AUDIT, AuditOptions)
    verbosity: int = integer("v", 0, "How much is logged, from 0 up.", under=SERVING)
    nice: int = 0
    features: FeatureGates = field(default_factory=make_features)
    configuration: WatchedConfiguration | None = None
    """None: none is followed."""
    remarks: tuple[str, ...] = ()
    """What of the command line will not have the expected effect, in sentences."""


ReadOptions = Callable[[Mapping[str, str]], Options]
"""Returns the options of the command line with these flags, by name, at its end. Raises ConfigurationError."""
