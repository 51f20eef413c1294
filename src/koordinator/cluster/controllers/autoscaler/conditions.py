"""The conditions of an autoscaler, as they are set one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from koordinator.api.meta import Condition
from koordinator.cluster.controllers.autoscaler.scaling_rules import Reason
from koordinator.cluster.controllers.conditions import find_condition, whole_seconds

ABLE: Final = "AbleToScale"
ACTIVE: Final = "ScalingActive"
LIMITED: Final = "ScalingLimited"


@dataclass(slots=True)
class Conditions:
    """Each keeps the time at which its status last changed."""

    now: datetime
    items: list[Condition] = field(default_factory=list)

    def set(self, type_: str, is_so: bool, reason: Reason) -> None:
        old, status = find_condition(self.items, type_), "True" if is_so else "False"
        since = old.last_transition_time if old is not None and old.status == status else whole_seconds(self.now)
        made = Condition(type=type_, status=status, reason=reason[0], message=reason[1], last_transition_time=since)
        if old is None:
            self.items = [*self.items, made]
        else:
            self.items = [made if each is old else each for each in self.items]


def copied(conditions: list[Condition], now: datetime) -> Conditions:
    return Conditions(now, [msgspec.structs.replace(each) for each in conditions])
