"""Names are replaced, the same one by the same everywhere, and what is nobody's stays."""

from __future__ import annotations

import pytest

from koordinator.cli.support_bundle.anonymity import Names

POD = {
    "metadata": {
        "name": "shop-7f9c-abcde",
        "namespace": "payments",
        "generateName": "shop-7f9c-",
        "uid": "1",
        "ownerReferences": [{"kind": "ReplicaSet", "name": "shop-7f9c"}],
        "labels": {"app": "shop", "quota.scheduling.koordinator.sh/name": "team-blue", "corp.example/owner": "alice"},
    },
    "spec": {
        "nodeName": "ip-10-0.ec2.internal",
        "containers": [{"name": "checkout", "image": "registry.corp.example/shop:1", "env": [{"name": "A"}]}],
        "volumes": [{"secret": {"secretName": "card-numbers"}}],
    },
    "status": {"podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}, {"ip": "fd00::7"}]},
}


@pytest.fixture
def names() -> Names:
    found = Names({"koordinator-system", "koord-scheduler"})
    found.learn_object("pod", POD)
    found.learn_object("pod", {"metadata": {"name": "koord-scheduler-1", "namespace": "koordinator-system"}})
    return found


def test_an_object_is_one_of_nobody(names: Names) -> None:
    assert names.document(POD) == {
        "metadata": {
            "name": "pod-1",
            "namespace": "namespace-1",
            "ownerReferences": [{"kind": "ReplicaSet", "name": "replicaset-1"}],
            "labels": {"quota.scheduling.koordinator.sh/name": "name-1"},
        },
        "spec": {"nodeName": "node-1", "containers": [{"name": "container-1", "image": "image-1"}]},
        "status": {"podIP": "address-1", "podIPs": [{"ip": "address-1"}, {"ip": "address-2"}]},
    }


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("payments/shop-7f9c-abcde on ip-10-0.ec2.internal", "namespace-1/pod-1 on node-1"),
        ('koordlet_x{pod="shop-7f9c-abcde",node="ip-10-0.ec2.internal"} 1', 'koordlet_x{pod="pod-1",node="node-1"} 1'),
        ("an event ip-10-0.ec2.internal.18ed07", "an event node-1.18ed07"),
        ("shop-7f9c-zzzzz, which is gone", "replicaset-1-zzzzz, which is gone"),
        ("shop.payments.svc", "deployment-1.namespace-1.svc"),
        ("pvc-shop-7f9c-abcde", "pvc-pod-1"),
        ("team-blue of checkout at 10.1.2.3, not 10.9.9.9", "name-1 of container-1 at address-1, not address-3"),
        ("at fd00::7", "at address-2"),
        ("checkout.py:12", "checkout.py:12"),
    ],
)  # fmt: skip
def test_a_text_names_the_same(text: str, wanted: str, names: Names) -> None:
    assert names.text(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "lease koordinator-system/koord-scheduler of koord-scheduler-1",
        "2026-12-01T04:48:17 127.0.0.1:10251 0.0.0.0 version 1.35.0",
        "0/4 nodes are available: 4 Insufficient kubernetes.io/batch-cpu.",
        "namespace default of kube-system",
    ],
)
def test_what_is_ours_or_everybodys_stays(text: str, names: Names) -> None:
    assert names.text(text) == text


def test_images_of_the_installation_lose_where_they_are_from_alone(names: Names) -> None:
    document = {"image": "registry.corp.example/team/koordinator:0.1.0", "env": [{"name": "A"}]}
    assert names.document(document, ours=True) == {"image": "koordinator:0.1.0", "env": [{"name": "A"}]}


def test_keys_that_are_names_are_replaced_and_fields_are_not(names: Names) -> None:
    names.learn("pod", "name")
    assert names.document({"ip-10-0.ec2.internal": {"name": "payments"}}) == {"node-1": {"name": "namespace-1"}}
