"""The policy in force: what is invalid leaves what was valid last."""

from __future__ import annotations

from typing import Any

from koordinator.koordlet.enforce.policy import EnforcedPolicy
from tests.koordlet.enforce.strategies.qos_fixtures import policy


def thresholds(enforced: EnforcedPolicy) -> tuple[Any, Any]:
    assert enforced.spec is not None
    threshold, system = enforced.spec.resource_used_threshold_with_be, enforced.spec.system_strategy
    assert threshold is not None
    assert system is not None
    return threshold.cpu_suppress_threshold_percent, system.watermark_scale_factor


def spec(percent: int, scale: int) -> Any:
    return policy(
        resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": percent},
        systemStrategy={"watermarkScaleFactor": scale},
    )


def test_a_valid_policy_is_in_force() -> None:
    enforced = EnforcedPolicy()
    assert enforced.accept(spec(70, 150)) == ()
    assert thresholds(enforced) == (70, 150)


def test_a_section_with_an_invalid_value_stays_as_it_was_and_the_others_are_taken() -> None:
    enforced = EnforcedPolicy()
    enforced.accept(spec(70, 150))
    (invalid,) = enforced.accept(spec(101, 200))
    assert thresholds(enforced) == (70, 200)
    assert invalid.startswith("spec.resourceUsedThresholdWithBE is not used, what it said before stays in force: ")
    assert "CPUSuppressThresholdPercent" in invalid


def test_the_first_policy_falls_back_to_the_defaults() -> None:
    enforced = EnforcedPolicy()
    assert len(enforced.accept(spec(101, 150))) == 1
    assert thresholds(enforced) == (65, 150)


def test_a_policy_that_changes_all_the_time_is_what_it_said_last() -> None:
    enforced = EnforcedPolicy()
    for number in range(100):
        enforced.accept(spec(60 + number % 2 * 50, 150 + number))
    assert thresholds(enforced) == (60, 249)
