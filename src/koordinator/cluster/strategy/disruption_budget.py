"""PodDisruptionBudgets: how many pods may be missing, as a number or as a share, but not both ways at once."""

from __future__ import annotations

import re
from typing import Any, Final

from koordinator.api.document import Document
from koordinator.cluster.resource import Cause
from koordinator.cluster.strategy import tables
from koordinator.cluster.strategy.causes import invalid, not_supported
from koordinator.cluster.strategy.label_selector import validate_label_selector
from koordinator.cluster.strategy.object_strategy import ObjectStrategy

_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")
_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_NOT_NEGATIVE: Final = "must be greater than or equal to 0"
_PERCENT: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


class DisruptionBudgetStrategy(ObjectStrategy):
    def __init__(self) -> None:
        table = tables.POD_DISRUPTION_BUDGET
        super().__init__("policy/v1", "PodDisruptionBudget", table=table, generation=True, status=True)

    def check(self, obj: Document, old: Document | None) -> list[Cause]:
        spec = obj["spec"]
        limits = [name for name in ("minAvailable", "maxUnavailable") if spec.get(name) is not None]
        causes = [_both_set(spec)] if len(limits) == 2 else []
        for name in limits:
            causes += _check_amount(spec[name], f"spec.{name}")
        kept = old is not None and bool(validate_label_selector(old["spec"].get("selector") or {}, ""))
        causes += validate_label_selector(spec.get("selector") or {}, "spec.selector", any_value=kept)
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy is not None and policy not in _POLICIES:
            causes.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, _POLICIES))
        return causes

    def validate_status(self, obj: Document, old: Document) -> list[Cause]:
        status = obj["status"]
        return [
            invalid(f"status.{name}", status[name], _NOT_NEGATIVE) for name in _COUNTS if (status.get(name) or 0) < 0
        ]


def _both_set(spec: Document) -> Cause:
    # The real server shows its own Go struct here.
    names = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")
    shown = {name[0].upper() + name[1:]: spec.get(name) for name in names}
    return invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")


def _check_amount(amount: Any, field: str) -> list[Cause]:
    if isinstance(amount, int):
        return [] if amount >= 0 else [invalid(field, amount, _NOT_NEGATIVE)]
    if not re.fullmatch("[0-9]+%", amount):
        return [invalid(field, amount, _PERCENT)]
    return [] if int(amount[:-1]) <= 100 else [invalid(field, amount, "must not be greater than 100%")]
