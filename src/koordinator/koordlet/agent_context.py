"""What the parts of one agent share: what it was given, and what each of them reads or reports to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from koordinator.base.clock import Clock
from koordinator.base.metrics import Metrics
from koordinator.base.served_connections import ProgramConnections
from koordinator.koordlet.agent_metrics import AgentMetrics
from koordinator.koordlet.enforce.plugins import Plugins
from koordinator.koordlet.observe.metric_cache.ring import RingMetricCache
from koordinator.koordlet.observe.recent_usage import RecentUsage
from koordinator.koordlet.observe.usage_table import UsageTable
from koordinator.koordlet.options import Options
from koordinator.koordlet.pods.kubelet_connection import ConnectKubelet
from koordinator.koordlet.pods.states import StatesInformer
from koordinator.koordlet.report.audit.log import AuditLog
from koordinator.kube.events import EventBroadcaster
from koordinator.kube.interface import Client
from koordinator.kube.secure_serving import SecureServing
from koordinator.node.connection_delays import ReadDelays
from koordinator.node.core_scheduling import Prctl
from koordinator.node.errors import Unavailable
from koordinator.node.host import Host
from koordinator.node.kernel_writer import KernelFiles, MachineFiles
from koordinator.node.nvml import NVML, open_nvml
from koordinator.node.traffic_control import TrafficControlAccess


@dataclass(frozen=True, slots=True)
class Dependencies:
    client: Client
    connect_kubelet: ConnectKubelet
    clock: Clock
    random: Random
    metrics: Metrics
    open_nvml: Callable[[Host], NVML | Unavailable] = open_nvml
    """Returns the GPUs of the node, where they are to be measured."""
    prctl: Prctl | None = None
    """The call for core scheduling of the kernel that runs the pods; None where they are simulated."""
    traffic_control: TrafficControlAccess | None = None
    """Of the network that the pods are in; None where it is simulated."""
    read_delays: ReadDelays | None = None
    """Of the connections of pods; None where their network is simulated."""
    kernel_files: KernelFiles = field(default_factory=MachineFiles)
    """Where limits are written."""
    plugins: Plugins = field(default_factory=Plugins)
    """Strategies, hooks and sinks of other packages."""
    set_verbosity: Callable[[int], None] = lambda _: None
    """Called when ``--v`` has changed."""
    secure: SecureServing | None = None
    """What the secure port needs, where one is served."""
    before_scan: Callable[[], None] = lambda: None
    """Called right before the machine is read each time: a simulated kernel brings its files up to this moment."""


@dataclass(slots=True)
class AgentContext:
    """Made by the agent, once, for all its parts."""

    options: Options
    """Those in force: the agent replaces them when its ConfigMap changes. Who keeps them keeps those of the start."""
    given: Dependencies
    states: StatesInformer
    table: UsageTable
    cache: RingMetricCache
    metrics: AgentMetrics
    events: EventBroadcaster
    audit: AuditLog | None
    connections: ProgramConnections
    """To all servers of the agent."""

    @property
    def recent_usage(self) -> RecentUsage:
        return RecentUsage(self.table, self.cache, self.given.clock)
