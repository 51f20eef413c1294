"""Every kind of event has words."""

from __future__ import annotations

import pytest

from koordinator.scheduler.engine.events import EventKind
from koordinator.scheduler.explain.explainer import event_meaning
from tests.scheduler.explain.scene import WITH_QUOTAS, Scene


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (EventKind.POD_DELETE, "a pod on some node finishes or is deleted"),
        ("NodeMetric/Update", "a node reports new usage"),
        ("PersistentVolumeClaim/Add", "a PersistentVolumeClaim is created"),
        ("CSINode/Update", "a CSINode is changed"),
        ("StorageClass/Delete", "a StorageClass is deleted"),
        ("ElasticQuota/Update", "an ElasticQuota is changed"),
        ("Thing/UpdateSomething", "a Thing is changed"),
    ],
)
def test_a_kind_is_said_as_a_person_would(kind: str, words: str) -> None:
    assert event_meaning(kind) == words


def test_every_event_that_a_built_in_plugin_waits_for_has_its_own_words() -> None:
    kinds = {
        kind
        for plugin in Scene(configuration=WITH_QUOTAS).profile.plugins.values()
        for kind in plugin.events_to_register()
    }
    assert len({event_meaning(kind) for kind in kinds}) == len(kinds)
