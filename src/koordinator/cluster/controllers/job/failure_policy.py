"""What the podFailurePolicy of a Job says of a pod that has failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Final

from koordinator.api.batch import OnExitCodes, PodFailurePolicy, PodFailurePolicyRule
from koordinator.api.pod import ContainerStatus, Pod

COUNT: Final = "Count"
FAIL_INDEX: Final = "FailIndex"
FAIL_JOB: Final = "FailJob"
IGNORE: Final = "Ignore"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``action`` is that of the first rule that matches, or Count; ``message`` says why a Job fails."""

    action: str = COUNT
    message: str = ""

    @property
    def counts(self) -> bool:
        """Whether the failure counts towards the backoff limits."""
        return self.action != IGNORE


_COUNTED: Final = Verdict()


def verdict(policy: PodFailurePolicy | None, pod: Pod) -> Verdict:
    """The first rule of the policy that matches decides; without one, the failure counts."""
    for position, rule in enumerate(policy.rules if policy is not None else ()):
        why = _match(rule, pod)
        if why:
            message = f"{why} matching {rule.action} rule at index {position}" if rule.action == FAIL_JOB else ""
            return Verdict(rule.action, message)
    return _COUNTED


def _match(rule: PodFailurePolicyRule, pod: Pod) -> str:
    """How the pod matches, as the start of a message; empty if it does not."""
    if rule.on_exit_codes is not None:
        ended = chain(pod.status.container_statuses, pod.status.init_container_statuses)
        return _match_exit_codes(rule.on_exit_codes, pod, ended)
    for condition in pod.status.conditions:
        if any(condition.type == each.type and condition.status == each.status for each in rule.on_pod_conditions):
            return f"Pod {pod.metadata.key} has condition {condition.type}"
    return ""


def _match_exit_codes(required: OnExitCodes, pod: Pod, statuses: Iterable[ContainerStatus]) -> str:
    for container in statuses:
        terminated = container.state.terminated
        if terminated is None or terminated.exit_code == 0:
            continue
        is_meant = required.container_name is None or required.container_name == container.name
        if is_meant and (terminated.exit_code in required.values) == (required.operator == "In"):
            code = terminated.exit_code
            return f"Container {container.name} for pod {pod.metadata.key} failed with exit code {code}"
    return ""
