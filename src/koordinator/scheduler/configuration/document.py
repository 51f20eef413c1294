"""The document as it is written: kubescheduler.config.k8s.io/v1, KubeSchedulerConfiguration, with its defaults."""

from __future__ import annotations

from typing import Any

from koordinator.api.component_configuration import ClientConnection, LeaderElection, Strict


class SchedulerLeaderElection(LeaderElection):
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"


class PluginEntry(Strict):
    name: str
    weight: int = 0


class PluginSet(Strict):
    enabled: list[PluginEntry] = []
    disabled: list[PluginEntry] = []


class Plugins(Strict):
    """Plugins by extension point; ``multi_point`` stands for all points that a plugin implements."""

    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()


class PluginConfig(Strict):
    name: str
    args: dict[str, Any] = {}


class Profile(Strict):
    scheduler_name: str | None = None
    """Needed where there is more than one profile."""
    percentage_of_nodes_to_score: int | None = None
    plugins: Plugins | None = None
    plugin_config: list[PluginConfig] = []


class KubeSchedulerConfiguration(Strict):
    api_version: str
    kind: str
    parallelism: int = 16
    leader_election: SchedulerLeaderElection = SchedulerLeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: list[Profile] = []
    extenders: list[dict[str, Any]] = []
    delay_cache_until_active: bool = False
