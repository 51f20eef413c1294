"""``/validate-pod``: refuses pods that cannot be treated as their labels promise, and warns of typing mistakes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from koordinator.base.errors import KoordinatorError
from koordinator.base.feature_gates import FeatureGates
from koordinator.manager import features
from koordinator.manager.webhook.admission import (
    ALLOWED,
    UNMEASURED,
    AdmissionRequest,
    AdmissionResponse,
    Steps,
    content,
)
from koordinator.manager.webhook.pod.enhanced_rules import EnhancedRule, EnhancedValidation, no_rules
from koordinator.manager.webhook.pod.rules import (
    ColocationRules,
    DeviceResourceRules,
    PodCheck,
    PodReview,
    ReservedAnnotations,
    is_terminating,
    joined,
    pod_review,
)
from koordinator.model.typing_mistakes import new_mistakes


class PodRefused(KoordinatorError):
    """A pod that violates a rule; the message names the field, and the allowed values."""


@dataclass(frozen=True, slots=True)
class PodValidationSettings:
    """The checks that run."""

    fixed_sub_priority: bool = True
    device_resources: bool = False
    enhanced_rules: bool = False

    @classmethod
    def from_gates(cls, gates: FeatureGates) -> PodValidationSettings:
        return cls(
            fixed_sub_priority=not gates.enabled(features.COLOCATION_PROFILE_SKIP_VALIDATING_PRIORITY),
            device_resources=gates.enabled(features.VALIDATE_POD_DEVICE_RESOURCE),
            enhanced_rules=gates.enabled(features.ENABLE_POD_ENHANCED_VALIDATOR),
        )


class PodValidatingHandler:
    """Runs its checks in order; the first that reports a problem refuses the pod.

    ``quota_checks`` run after the unconditional checks of this package and before those behind feature gates.
    """

    path = "/validate-pod"

    def __init__(
        self,
        enhanced_rules: Callable[[], tuple[EnhancedRule, ...]] = no_rules,
        quota_checks: Sequence[PodCheck] = (),
        settings: PodValidationSettings | None = None,
        steps: Steps = UNMEASURED,
        quotas: Collection[str] | None = None,
    ) -> None:
        """``quotas``: the names of the quotas that there are, where that is known."""
        settings = settings or PodValidationSettings()
        self._checks: list[PodCheck] = [
            ReservedAnnotations(),
            ColocationRules(fixed_sub_priority=settings.fixed_sub_priority),
            *quota_checks,
        ]
        if settings.device_resources:
            self._checks.append(DeviceResourceRules())
        if settings.enhanced_rules:
            self._checks.append(EnhancedValidation(enhanced_rules))
        self._steps = steps
        self._quotas = quotas

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Raises PodRefused, and DecodeError for an object that is no pod."""
        if request.resource != "pods" or request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
            return ALLOWED
        review = pod_review(request)
        # Refusing updates of a terminating pod, even an invalid one, would only keep it from terminating.
        if is_terminating(review):
            return ALLOWED
        for check in self._checks:
            with self._steps.step(request.operation, check.plugin):
                _refuse_if(check, review)
        warnings = new_mistakes(content(request.object), request.old_object, self._quotas)
        return AdmissionResponse(warnings=warnings) if warnings else ALLOWED


def _refuse_if(check: PodCheck, review: PodReview) -> None:
    problems = check.problems(review)
    if problems:
        raise PodRefused(joined(problems))
