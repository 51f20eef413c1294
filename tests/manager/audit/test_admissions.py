"""What the pod webhook hands to the audit."""

from __future__ import annotations

from typing import Any, cast

from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES
from koordinator.api.meta import ObjectMeta
from koordinator.api.modification import ADMITTED, Modification
from koordinator.base.clock import ManualClock
from koordinator.manager.audit.admissions import AdmissionSummary


class Recorded:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, Modification]] = []

    def event(self, regarding: Any, type_: str, reason: str, action: str, note: str, **more: Any) -> None:
        self.events.append((regarding.name, note, more["modification"]))


def test_a_period_is_one_record_for_a_profile_however_many_pods_there_were() -> None:
    recorded, clock = Recorded(), ManualClock()
    summary = AdmissionSummary(cast("Any", recorded), clock)
    batch, spark = (ClusterColocationProfile(metadata=ObjectMeta(name=name)) for name in ("batch", "spark"))
    for number in range(20):
        summary.admitted(CLUSTER_COLOCATION_PROFILES, [batch], f"team-{number % 7}")
    summary.admitted(CLUSTER_COLOCATION_PROFILES, [batch, spark], "team-0")
    summary.record()
    summary.record()
    (name, note, record), (other, _, _) = recorded.events
    assert (name, other) == ("batch", "spark")
    assert note.startswith("applied to new pods of team-0 (4), ")
    assert note.endswith(" and of 2 other namespaces")
    assert (record.action, record.count, record.since) == (ADMITTED, 21, clock.now())
    assert record.numbers == {"pods": 21.0, "namespaces": 7.0}
