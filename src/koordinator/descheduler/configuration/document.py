"""The document as it is written: descheduler/v1alpha2, DeschedulerConfiguration, with its defaults."""

from __future__ import annotations

from typing import Any, Final

from koordinator.api.component_configuration import ClientConnection, LeaderElection, Strict
from koordinator.api.duration import GoDuration
from koordinator.api.meta import LabelSelector

VERSION: Final = "descheduler/v1alpha2"
KIND: Final = "DeschedulerConfiguration"
DEFAULT_PROFILE: Final = "koord-descheduler"
DEFAULT_PORT: Final = 10251


class DeschedulerLeaderElection(LeaderElection):
    resource_name: str = "koord-descheduler"
    resource_namespace: str = "koordinator-system"


class PluginEntry(Strict):
    name: str = ""


class PluginSet(Strict):
    enabled: list[PluginEntry] = []
    disabled: list[PluginEntry] = []


class Plugins(Strict):
    """Plugins by extension point."""

    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    evict: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()


class PluginConfig(Strict):
    name: str
    args: dict[str, Any] = {}


class Profile(Strict):
    name: str = ""
    """Needed where there is more than one profile."""
    plugin_config: list[PluginConfig] = []
    plugins: Plugins | None = None
    node_selector: LabelSelector | None = None


class DeschedulerConfiguration(Strict):
    api_version: str
    kind: str
    leader_election: DeschedulerLeaderElection = DeschedulerLeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    """Read and ignored: there are no mutexes to be contended for."""
    healthz_bind_address: str | None = None
    metrics_bind_address: str | None = None
    """None is every address on DEFAULT_PORT."""
    descheduling_interval: GoDuration = GoDuration()
    """From start to start; 0: one cycle."""
    dry_run: bool = False
    profiles: list[Profile] = []
    node_selector: LabelSelector | None = None
    """Of the nodes that any profile looks at."""
    max_no_of_pods_to_evict_per_node: int | None = None
    max_no_of_pods_to_evict_per_namespace: int | None = None
    max_no_of_pods_to_evict_total: int | None = None
    """Each in one cycle; None for no limit, 0 forbids every eviction."""
