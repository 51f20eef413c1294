"""The options of koord-manager, grouped by the part that reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from koordinator.api import slo_controller_config
from koordinator.api.installation import NAMESPACE
from koordinator.base.feature_gates import FeatureGates
from koordinator.base.listen_address import ListenAddress
from koordinator.base.name_list import is_enabled
from koordinator.manager.environment import WebhookEnvironment
from koordinator.manager.features import make_features
from koordinator.manager.recommender.options import RecommenderOptions
from koordinator.manager.webhook.pod.binding import BindingAdmissionSettings
from koordinator.model.overcommit.policies import PLUGINS

CONTROLLERS: Final = ("colocationprofile", "nodemetric", "noderesource", "nodeslo", "quotaprofile", "recommender")
METRICS_ADDRESS: Final = ListenAddress("127.0.0.1", 8080, "--metrics-addr")
HEALTH_ADDRESS: Final = ListenAddress("127.0.0.1", 8000, "--health-probe-addr")
PROFILE_ADDRESS: Final = ListenAddress("127.0.0.1", 8090, "--pprof-addr")


@dataclass(frozen=True, slots=True)
class PodEnhancedValidatorOptions:
    """The ConfigMap of additional validation rules for pods."""

    config_namespace: str = NAMESPACE
    config_name: str = "pod-enhanced-validator-config"
    reconcile_interval: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class QuotaUpdateOptions:
    """How often, and with which pauses, the pod webhook retries to write a quota's usage."""

    max_retries: int = 3
    retry_jitter: timedelta = timedelta(0)
    max_total_jitter: timedelta = timedelta(seconds=1)
    conflict_fresh_get: bool = False


@dataclass(frozen=True, slots=True)
class ColocationProfileOptions:
    """How the colocation profile controller updates existing pods."""

    reconcile_by_default: bool = False
    reconcile_interval: timedelta = timedelta(seconds=30)
    force_update_pod_duration: timedelta = timedelta(minutes=5)
    expire_pod_cache_duration: timedelta = timedelta(minutes=10)
    update_pod_qps: float = 10.0
    update_pod_qps_burst: int = 100


@dataclass(frozen=True, slots=True)
class Options:
    """All options, with the original's defaults except for the addresses, which are loopback here."""

    kubeconfig: str = ""
    qps: int = 30
    burst: int = 50
    namespace: str = ""
    """The namespace of the watched pods, quotas and quota profiles; empty for all."""
    metrics_address: ListenAddress = METRICS_ADDRESS
    health_address: ListenAddress = HEALTH_ADDRESS
    profile_address: ListenAddress = PROFILE_ADDRESS
    leader_election: bool = True
    leader_election_namespace: str = NAMESPACE
    controllers: tuple[str, ...] = CONTROLLERS
    node_resource_plugins: tuple[str, ...] = PLUGINS
    slo_config_name: str = slo_controller_config.DEFAULT_NAME
    config_namespace: str = NAMESPACE
    node_strategy_name_needed: bool = False
    pod_enhanced_validator: PodEnhancedValidatorOptions = PodEnhancedValidatorOptions()
    quota_update: QuotaUpdateOptions = QuotaUpdateOptions()
    binding_admission: BindingAdmissionSettings = field(default_factory=BindingAdmissionSettings)
    colocation_profile: ColocationProfileOptions = ColocationProfileOptions()
    recommender: RecommenderOptions = field(default_factory=RecommenderOptions)
    features: FeatureGates = field(default_factory=make_features)
    verbosity: int = 2
    environment: WebhookEnvironment = field(default_factory=WebhookEnvironment)
    remarks: tuple[str, ...] = ()
    """A sentence for each flag that was given and will not have the expected effect."""

    def runs_controller(self, name: str) -> bool:
        """Whether ``--controllers`` enables this controller."""
        return is_enabled(name, self.controllers)

    def runs_node_resource_plugin(self, name: str) -> bool:
        """Whether ``--noderesource-plugins`` enables this plugin."""
        return is_enabled(name, self.node_resource_plugins)
