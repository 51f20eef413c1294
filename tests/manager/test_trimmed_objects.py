"""What the manager keeps of pods."""

from __future__ import annotations

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.manager.trimmed_pods import TrimmedPod, trimmed
from koordinator.model.overcommit.facts import pod_facts

POD = convert(
    {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {
            "nodeName": "n1",
            "priority": 9500,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}],
        },
        "status": {"phase": "Running"},
    },
    Pod,
)


def test_metadata_and_node_stay_as_they_are() -> None:
    digest = trimmed(POD)
    assert (digest.metadata, digest.spec.node_name) == (POD.metadata, "n1")


def test_the_facts_are_those_of_the_whole_pod() -> None:
    digest = trimmed(POD)
    assert isinstance(digest, TrimmedPod)
    assert digest.facts == pod_facts(POD)


def test_pods_of_a_node_share_what_is_alike() -> None:
    one, other = trimmed(POD), trimmed(POD)
    assert one.spec is other.spec
    assert one.status is other.status
