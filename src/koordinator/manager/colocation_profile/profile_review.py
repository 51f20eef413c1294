"""Reports every ClusterColocationProfile that cannot be used, by an event on the profile and by a metric.

The webhook warns the client that creates a pod; but most pods are created by controllers, which show no warnings.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES
from koordinator.kube.event_series import reference_to
from koordinator.manager import features
from koordinator.manager.colocation_profile.decision import compile_for_pods
from koordinator.manager.controllers import ControllerContext
from koordinator.manager.options import Options

_PERIOD: Final = 300.0
"""Seconds: an event recorder joins what repeats within six minutes to a series, and API servers forget a series that
does not go on."""


def are_profiles_read(options: Options) -> bool:
    """Whether this process applies profiles: in a webhook, or in the controller for existing pods."""
    enabled = options.features.enabled
    at_admission = enabled(features.POD_MUTATING_WEBHOOK) or enabled(features.RESERVATION_MUTATING_WEBHOOK)
    return (enabled(features.WEBHOOK_FRAMEWORK) and at_admission) or enabled(features.COLOCATION_PROFILE_CONTROLLER)


class ProfileReview:
    """Every replica exports the metric; the leader writes the events."""

    name = "colocationprofile-review"

    def __init__(self, context: ControllerContext) -> None:
        # The same event source as the controller that applies profiles, so that events of both on a profile form one
        # series.
        self._recorder = context.events.recorder("colocationprofile")
        self._unusable = context.metrics.gauge(
            "koord_manager_colocation_profile_unusable",
            "1 for each ClusterColocationProfile that cannot be used and is not applied; an event on it says why",
            ("profile",),
        )
        self._warnings: dict[str, str] = {}
        self._profiles = context.informers.informer(CLUSTER_COLOCATION_PROFILES, absent_is_empty=True)
        self._reconciler = context.reconcilers.make(
            self.name,
            self._reconcile,
            lambda: sorted(self._warnings),
        )
        self._profiles.add_handlers(
            name=self.name,
            on_add=lambda profile, _: self._review(profile),
            on_update=lambda _, profile: self._review(profile),
            on_delete=lambda profile: self._forget(profile.metadata.name),
        )

    async def run(self) -> None:
        """Work until cancelled; may be called again when this replica is elected again."""
        await self._reconciler.run()

    def _review(self, profile: ClusterColocationProfile) -> None:
        name = profile.metadata.name
        warning = compile_for_pods(profile).warning
        if not warning:
            self._forget(name)
            return
        self._warnings[name] = warning
        self._unusable.labels(name).set(1)
        self._reconciler.add(name)

    def _forget(self, name: str) -> None:
        if self._warnings.pop(name, None) is not None:
            self._unusable.remove(name)

    async def _reconcile(self, name: str) -> float | None:
        profile, warning = self._profiles.get(name), self._warnings.get(name)
        if profile is None or warning is None:
            return None
        about = reference_to(CLUSTER_COLOCATION_PROFILES, profile)
        self._recorder.event(about, "Warning", "InvalidProfile", "Reconcile", warning)
        return _PERIOD
