"""The flags of controllers and of webhooks, each with the options that it ends up in."""

from __future__ import annotations

from typing import Final

from koordinator.base.flag_types import FlagGroup
from koordinator.base.flags import FlagValues
from koordinator.manager.options import (
    CONTROLLERS,
    ColocationProfileOptions,
    PodEnhancedValidatorOptions,
    QuotaUpdateOptions,
)
from koordinator.manager.webhook.pod.binding import BindingAdmissionSettings
from koordinator.model.overcommit.policies import PLUGINS

_LIST: Final = "names, * for all others, -NAME for all but that one; the first that names it decides.\nAll: "
_PROFILE: Final = ColocationProfileOptions()
_VALIDATOR: Final = PodEnhancedValidatorOptions()
_QUOTA: Final = QuotaUpdateOptions()
_BINDING: Final = BindingAdmissionSettings()


class ControllerFlags:
    """Which controllers run, and how the one for colocation profiles does."""

    def __init__(self, group: FlagGroup) -> None:
        self.controllers = group.strings(
            "controllers", CONTROLLERS, f"The controllers to run: {_LIST}{', '.join(CONTROLLERS)}"
        )
        self.node_resource_plugins = group.strings(
            "noderesource-plugins",
            PLUGINS,
            f"The parts of the noderesource controller: {_LIST}{', '.join(PLUGINS)}",
        )
        self._by_default = group.boolean(
            "colocation-profile-reconcile-by-default",
            _PROFILE.reconcile_by_default,
            "Bring existing pods in line with every ClusterColocationProfile, not only with those that are labelled "
            "config.koordinator.sh/controller-managed=true (feature ColocationProfileController).",
        )
        self._interval = group.duration(
            "colocation-profile-reconcile-interval",
            _PROFILE.reconcile_interval,
            "How often to do so; 0: only when a profile changes.",
        )
        self._force_update = group.duration(
            "colocation-profile-force-update-pod-duration",
            _PROFILE.force_update_pod_duration,
            "Look again after so long at a pod that a profile has been applied to, and write it if it is not in line; "
            "0: not until the profile changes.",
        )
        self._expire = group.duration(
            "colocation-profile-expire-pod-cache-duration",
            _PROFILE.expire_pod_cache_duration,
            "How often to drop from memory the pods that are gone or are to be looked at again.",
        )
        self._qps = group.number(
            "colocation-profile-update-pod-qps",
            _PROFILE.update_pod_qps,
            "Pods to write a second; 0: the burst and no more.",
        )
        self._burst = group.integer(
            "colocation-profile-update-pod-qps-burst",
            _PROFILE.update_pod_qps_burst,
            "Pods to write at once, after a pause.",
        )

    def colocation_profile(self, given: FlagValues) -> ColocationProfileOptions:
        return ColocationProfileOptions(
            reconcile_by_default=given[self._by_default],
            reconcile_interval=given[self._interval],
            force_update_pod_duration=given[self._force_update],
            expire_pod_cache_duration=given[self._expire],
            update_pod_qps=given[self._qps],
            update_pod_qps_burst=given[self._burst],
        )


class WebhookFlags:
    """What webhooks check, and how they keep account of quotas."""

    def __init__(self, group: FlagGroup) -> None:
        self.node_strategy_name = group.string(
            "node-strategy-name-need-check",
            "false",
            "true has the ConfigMap webhook refuse node strategies without a name, or with one that is taken.",
        )
        self._validator(group)
        self._quota(group)
        self._binding(group)

    def _validator(self, group: FlagGroup) -> None:
        self._validator_namespace = group.string(
            "pod-enhanced-validator-config-namespace",
            _VALIDATOR.config_namespace,
            "The namespace of the ConfigMap with further rules for pods (feature EnablePodEnhancedValidator).",
        )
        self._validator_name = group.string("pod-enhanced-validator-config-name", _VALIDATOR.config_name, "Its name.")
        self._validator_interval = group.duration(
            "pod-enhanced-validator-reconcile-interval",
            _VALIDATOR.reconcile_interval,
            "A change of it is in force after so long at most; 0: at once.",
        )

    def _quota(self, group: FlagGroup) -> None:
        self._retries = group.integer(
            "quota-update-max-retries",
            _QUOTA.max_retries,
            "How often to try again to write what a quota has used (feature EnableQuotaAdmission): three times, and "
            "once more for each doubling of the pods that are counted together, up to this many; less than 3 means 3.",
        )
        self._jitter = group.duration(
            "quota-update-retry-jitter",
            _QUOTA.retry_jitter,
            "Wait for half of this to all of it after a conflict with another replica; 0: do not wait. 50ms suits "
            "several replicas.",
        )
        self._total_jitter = group.duration(
            "quota-update-max-total-jitter",
            _QUOTA.max_total_jitter,
            "The longest that such waits add up to for one write.",
        )
        self._fresh_get = group.boolean(
            "quota-update-conflict-fresh-get",
            _QUOTA.conflict_fresh_get,
            "After a conflict read the quota from the API server instead of from what was watched.",
        )

    def _binding(self, group: FlagGroup) -> None:
        self._user_names = group.strings(
            "binding-admission-user-name",
            _BINDING.user_names,
            "Parts of the names of users who may bind pods, such as koord-scheduler; empty: everybody may (feature "
            "BindingAdmissionWebhook).",
        )
        self._dry_run = group.boolean(
            "binding-admission-dry-run",
            _BINDING.dry_run,
            "Let everybody bind, but log and count who would be refused.",
        )
        self._namespaces = group.strings(
            "binding-admission-namespaces",
            _BINDING.namespaces,
            "The namespaces where this is checked; * is all of them, empty is none, where everybody may bind.",
        )
        self._exclude_namespaces = group.strings(
            "binding-admission-exclude-namespaces",
            _BINDING.excluded_namespaces,
            "The namespaces where everybody may bind; they win over --binding-admission-namespaces.",
        )
        self._bypass_labels = group.strings(
            "binding-admission-bypass-labels", _BINDING.bypass_labels, "Pods with such a label may be bound by anybody."
        )
        self._bypass_annotations = group.strings(
            "binding-admission-bypass-annotations",
            _BINDING.bypass_annotations,
            "Pods with such an annotation may be bound by anybody.",
        )

    def pod_enhanced_validator(self, given: FlagValues) -> PodEnhancedValidatorOptions:
        return PodEnhancedValidatorOptions(
            config_namespace=given[self._validator_namespace],
            config_name=given[self._validator_name],
            reconcile_interval=given[self._validator_interval],
        )

    def quota_update(self, given: FlagValues) -> QuotaUpdateOptions:
        return QuotaUpdateOptions(
            max_retries=given[self._retries],
            retry_jitter=given[self._jitter],
            max_total_jitter=given[self._total_jitter],
            conflict_fresh_get=given[self._fresh_get],
        )

    def binding_admission(self, given: FlagValues) -> BindingAdmissionSettings:
        return BindingAdmissionSettings(
            user_names=given[self._user_names],
            dry_run=given[self._dry_run],
            namespaces=given[self._namespaces],
            excluded_namespaces=given[self._exclude_namespaces],
            bypass_labels=given[self._bypass_labels],
            bypass_annotations=given[self._bypass_annotations],
        )
