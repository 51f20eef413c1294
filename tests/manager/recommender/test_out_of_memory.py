"""Evicted events of the kubelet: which containers needed more memory."""

from __future__ import annotations

import pytest

from koordinator.api.codec import convert
from koordinator.api.core import Event
from koordinator.manager.recommender.out_of_memory import OutOfMemory, evictions
from tests.manager.recommender.pods import GIB, START


def event(containers: str, usage: str, resources: str) -> Event:
    annotations = {
        "offending_containers": containers,
        "offending_containers_usage": usage,
        "starved_resource": resources,
    }
    about = {"kind": "Pod", "namespace": "default", "name": "p", "uid": "uid-p"}
    metadata = {"name": "e", "namespace": "default", "annotations": annotations}
    document = {"metadata": metadata, "involvedObject": about, "reason": "Evicted", "lastTimestamp": START}
    return convert(document, Event)


def test_the_containers_that_were_short_of_memory() -> None:
    found = evictions(event("a,b", "1Gi,5Gi", "memory,ephemeral-storage"), START)
    assert list(found) == [OutOfMemory("default", "p", "uid-p", "a", GIB, START)]


@pytest.mark.parametrize(
    "broken",
    [event("", "", ""), event("a,b", "1Gi", "memory"), event("a", "plenty", "memory"), event("", "1Gi", "memory")],
)
def test_annotations_that_cannot_be_used_count_as_none(broken: Event) -> None:
    assert list(evictions(broken, START)) == []
