"""What the pod webhook hands to the audit."""

from __future__ import annotations

from koordinator.api.colocation_profile import ClusterColocationProfile
from koordinator.api.kinds import CLUSTER_COLOCATION_PROFILES
from koordinator.api.meta import ObjectMeta
from koordinator.api.modification import ADMITTED
from koordinator.base.clock import ManualClock
from koordinator.manager.audit.admissions import AdmissionSummary
from tests.recorded_events import RecordedEvents


def test_a_period_is_one_record_for_a_profile_however_many_pods_there_were() -> None:
    recorded, clock = RecordedEvents(), ManualClock()
    summary = AdmissionSummary(recorded, clock)
    batch, spark = (ClusterColocationProfile(metadata=ObjectMeta(name=name)) for name in ("batch", "spark"))
    for number in range(20):
        summary.admitted(CLUSTER_COLOCATION_PROFILES, [batch], f"team-{number % 7}")
    summary.admitted(CLUSTER_COLOCATION_PROFILES, [batch, spark], "team-0")
    summary.record()
    summary.record()
    (name, _, note), (other, _, _) = recorded.notes
    record, _ = recorded.records
    assert (name, other) == ("batch", "spark")
    assert note.startswith("applied to new pods of team-0 (4), ")
    assert note.endswith(" and of 2 other namespaces")
    assert (record.action, record.count, record.since) == (ADMITTED, 21, clock.now())
    assert record.numbers == {"pods": 21.0, "namespaces": 7.0}
