"""GPU requests in the form in which cards are shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.document import Document, copied
from koordinator.manager.webhook.pod.resource_specs import normalise_device_resources

P = "koordinator.sh/"


def amounts(**named: int | str) -> Document:
    names = {
        "gpu": "gpu",
        "core": "gpu-core",
        "memory": "gpu-memory",
        "ratio": "gpu-memory-ratio",
        "shared": "gpu.shared",
    }
    return {P + names[name]: str(amount) for name, amount in named.items()}


def normalised(resources: Document) -> Document:
    pod: Document = {"spec": {"containers": [{"name": "a", "resources": copied(resources)}]}}
    normalise_device_resources(pod)
    return dict(pod["spec"]["containers"][0]["resources"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (amounts(core=100, memory=4000, ratio=50), amounts(core=100, memory=4000, ratio=50, shared=1)),
        (amounts(core=100, memory=8000, ratio=200), amounts(core=100, memory=8000, ratio=200, shared=2)),
        (amounts(gpu=200), amounts(core=200, ratio=200, shared=2)),
        (amounts(gpu=100), amounts(core=100, ratio=100, shared=1)),
        (amounts(gpu=50), amounts(core=50, ratio=50, shared=1)),
        (amounts(gpu=150), amounts(core=150, ratio=150, shared=1)),
        (amounts(core=300), amounts(core=300, shared=3)),
        (amounts(core=300, ratio=100), amounts(core=300, ratio=100, shared=1)),
        (amounts(memory=4000), amounts(memory=4000, shared=1)),
        (amounts(shared=2, ratio=300), amounts(shared=2, ratio=300)),
        (amounts(gpu=200, shared=4), amounts(core=200, ratio=200, shared=4)),
        ({"cpu": "1"}, {"cpu": "1"}),
        ({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}),
    ],
)
def test_requests_and_limits_alike(before: Document, after: Document) -> None:
    assert normalised({"requests": before, "limits": before}) == {"requests": after, "limits": after}


def test_amounts_are_written_as_kubernetes_does() -> None:
    found = normalised({"requests": amounts(gpu="100000"), "limits": amounts(gpu="100000")})
    assert found["requests"] == amounts(core="100k", ratio="100k", shared="1k")


def test_missing_limits_are_made() -> None:
    found = normalised({"requests": amounts(gpu=200)})
    assert found["limits"] == amounts(core=200, ratio=200, shared=2)


def test_limits_alone_are_counted() -> None:
    assert normalised({"limits": amounts(core=100)}) == {
        "limits": amounts(core=100, shared=1),
        "requests": amounts(shared=1),
    }


def test_init_containers_stay_as_they_are() -> None:
    pod: Document = {"spec": {"initContainers": [{"name": "a", "resources": {"requests": amounts(gpu=100)}}]}}
    before = copied(pod)
    normalise_device_resources(pod)
    assert pod == before


@given(st.dictionaries(st.sampled_from(list(amounts(gpu=1, core=1, memory=1, ratio=1))), st.integers(0, 900).map(str)))
def test_a_second_time_changes_nothing(requests: Document) -> None:
    once = normalised({"requests": requests, "limits": requests})
    assert normalised(once) == once
