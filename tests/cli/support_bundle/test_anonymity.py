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
        ("at [fd00:0:0::7]:443, fd00::7: refused, fd00::9.", "at [address-2]:443, address-2: refused, address-3."),
        ("from ::ffff:10.1.2.3", "from address-1"),
        ('Pulling image "registry.corp.example/shop:1"', 'Pulling image "image-1"'),
        ("registry.corp.example/shop:2, lookup registry.corp.example", "image-3, lookup registry-1"),
        ("pulled other.example/a/b@sha256:" + 64 * "0", "pulled image-3"),
        ("in payments:shop-7f9c-abcde/checkout", "in namespace-1:pod-1/container-1"),
        ("had untolerated taint {corp.example/team: alice}", "had untolerated taint {label-1: value-1}"),
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
        "at [::1]:8080, at :: in 04:48:17 std::move 52:54:00:12:34:56",
        "1 node(s) had untolerated taint {node.kubernetes.io/not-ready: x}",
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


def test_fields_stay_and_names_that_are_words_are_replaced_as_keys(names: Names) -> None:
    assert names.document({"payments": {"metadata": 1}}) == {"namespace-1": {"metadata": 1}}


@pytest.mark.parametrize(
    "context", ["admin@Prod_EU", "arn:aws:eks:eu-west-1:1:cluster/Prod", "Prod EU", "Prods-MBP.local"]
)
def test_a_context_may_have_any_characters(context: str, names: Names) -> None:
    names.learn_text("context", context)
    assert names.text(f'of "{context}"') == 'of "context-1"'
    assert names.document({context: context}) == {"context-1": "context-1"}


def test_what_selects_labels_of_others_says_the_same_without_them(names: Names) -> None:
    known = {"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}
    document = {
        "tolerations": [{"key": "corp.example/team", "operator": "Equal", "value": "alice"}],
        "taints": [{"key": "corp.example/team", "effect": "NoSchedule", "value": "alice"}],
        "matchExpressions": [{"key": "team", "operator": "In", "values": ["alice"]}, known],
        "topologyKey": "corp.example/rack",
        "priorityClassName": "corp-critical",
    }
    assert names.document(document) == {
        "tolerations": [{"key": "label-1", "operator": "Equal", "value": "value-1"}],
        "taints": [{"key": "label-1", "effect": "NoSchedule", "value": "value-1"}],
        "matchExpressions": [{"key": "label-2", "operator": "In", "values": ["value-1"]}, known],
        "topologyKey": "label-3",
        "priorityClassName": "priorityclass-1",
    }
    assert names.text("no priority class corp-critical") == "no priority class priorityclass-1"


def test_priority_classes_of_everybody_stay(names: Names) -> None:
    names.learn_object("priorityclass", {"metadata": {"name": "koord-batch"}})
    document = {"priorityClassName": "system-node-critical", "text": "koord-batch"}
    assert names.document(document) == document


def test_images_of_the_installation_are_named_in_texts_without_where_they_are_from(names: Names) -> None:
    ours = {"containers": [{"name": "a", "image": "corp/koordinator:1"}]}
    names.learn_object("pod", {"metadata": {"name": "koordlet-1", "namespace": "koordinator-system"}, "spec": ours})
    assert names.text("Pulling corp/koordinator:1") == "Pulling koordinator:1"


def test_an_object_that_is_not_as_anybody_expects_teaches_nothing(names: Names) -> None:
    names.learn_object(
        "reservation", {"metadata": {"labels": [], "name": 1}, "spec": {"containers": ["a"]}, "status": 1}
    )
    assert names.text("a") == "a"


def test_a_text_is_gone_through_once_however_many_names_there_are(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1000):
        names.learn_text("context", f"Context_{number}")
        names.learn_object("pod", {"status": {"podIPs": [{"ip": f"fd00::1:{number:x}"}]}})
    looked_up: list[str] = []
    replaced = names._word

    def counted(word: str) -> str:
        looked_up.append(word)
        return replaced(word)

    monkeypatch.setattr(names, "_word", counted)
    assert names.text("Context_7 Context_8") == "context-8 context-9"
    assert looked_up == ["Context_7", "Context_8"]
    assert names._phrase is None
