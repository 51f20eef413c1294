"""What the manager keeps of pods and of reports."""

from __future__ import annotations

from msgspec.structs import replace

from koordinator.api.codec import convert
from koordinator.api.pod import Pod
from koordinator.base.clock import ManualClock
from koordinator.kube.informer_set import InformerSet
from koordinator.manager.trimmed_objects import (
    TrimmedPod,
    facts_of,
    pod_trimmer,
    trimmed_node_reports,
)
from koordinator.model.overcommit.facts import metric_facts, pod_facts
from koordinator.model.overcommit.node_report import NodeReport
from tests.kube.fake_client import ScriptedClient, as_client

POD = convert(
    {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"a": "b", "z": "y"},
            "annotations": {"c": "d", "e": "f"},
        },
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


REPORT = convert(
    {
        "metadata": {"name": "n1", "uid": "u"},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
        "status": {
            "updateTime": "2026-01-01T00:00:00Z",
            "podsMetric": [
                {"namespace": "shop", "name": "web", "podUsage": {"resources": {"cpu": "1500m", "memory": "1Gi"}}}
            ],
        },
    },
    NodeReport,
)
trimmed = pod_trimmer(frozenset({"a", "absent"}), frozenset({"c"}))


def test_identity_node_and_what_is_read_of_labels_and_annotations_stay() -> None:
    digest = trimmed(POD)
    metadata = digest.metadata
    assert (metadata.namespace, metadata.name, metadata.uid) == ("shop", "web", "u")
    assert (metadata.resource_version, digest.spec.node_name) == ("7", "n1")
    assert (metadata.labels, metadata.annotations) == ({"a": "b"}, {"c": "d"})


def test_what_nobody_reads_goes() -> None:
    metadata = pod_trimmer(frozenset(), frozenset())(POD).metadata
    assert (metadata.labels, metadata.annotations, list(metadata.owner_references)) == ({}, {}, [])


def test_the_facts_are_those_of_the_whole_pod() -> None:
    digest = trimmed(POD)
    assert isinstance(digest, TrimmedPod)
    assert digest.facts == pod_facts(POD)


def test_pods_share_what_is_alike() -> None:
    one, other = trimmed(POD), trimmed(replace(POD, metadata=replace(POD.metadata, name="other")))
    assert isinstance(one, TrimmedPod)
    assert isinstance(other, TrimmedPod)
    assert one.spec is other.spec
    assert one.facts is not None
    assert other.facts is not None
    assert one.facts.requests is other.facts.requests


def test_of_a_report_only_the_facts_stay() -> None:
    trim = trimmed_node_reports(informers()).transform
    assert trim is not None
    digest = trim(REPORT)
    assert (digest.metadata, digest.spec) == (REPORT.metadata, REPORT.spec)
    assert facts_of(digest) == metric_facts(REPORT)
    assert list(digest.status.pods_metric) == []


def informers() -> InformerSet:
    return InformerSet(as_client(ScriptedClient()), clock=ManualClock())
