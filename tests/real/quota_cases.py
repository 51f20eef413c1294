"""What both programs are queried about quotas, in this order: an accepted change counts for what comes after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from koordinator.api.document import Document
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA
from tests.manager.webhook.elastic_quota.quota_bench import changed
from tests.model.quota_tree.quota_objects import P, amounts, quota_document

VALIDATE = "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
MUTATE = "/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota"
MOST = amounts(120, 1048576)


@dataclass(frozen=True)
class Step:
    """``same_words`` is False where the text holds what a JSON library says, ``old`` is what is updated or deleted."""

    name: str
    path: str
    operation: str
    object: Document | None = None
    old: Document | None = None
    same_words: bool = True


def quota(name: str, /, **given: Any) -> Document:
    return quota_document(name, **{"max": MOST, "min": amounts(10, 100), **given})


def create(name: str, new: Document, *, same_words: bool = True) -> Step:
    return Step(name, VALIDATE, "CREATE", new, same_words=same_words)


def update(name: str, old: Document, new: Document) -> Step:
    return Step(name, VALIDATE, "UPDATE", new, old)


def delete(name: str, old: Document) -> Step:
    return Step(name, VALIDATE, "DELETE", old=old)


def fill(name: str, new: Document, *, same_words: bool = True) -> Step:
    return Step(name, MUTATE, "CREATE", new, same_words=same_words)


def pod(name: str, quota_name: str = "", namespace: str = "default", **labels: str) -> Document:
    given = {"name": quota_name, **labels} if quota_name else labels
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {f"{P}/{key}": value for key, value in given.items()},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False},
    }


def review_pod(name: str, new: Document, old: Document | None = None) -> Step:
    return Step(name, "/validate-pod", "CREATE" if old is None else "UPDATE", new, old)


STORED = quota("stored", is_parent=True, min=amounts(64, 51200), labels={"parent": ROOT_QUOTA})
BUSY = quota("busy", parent="stored", is_parent=False, annotations={"namespaces": '["claimed"]'})
NAMED = quota("own", parent=ROOT_QUOTA, is_parent=True, namespace="own")
QUOTAS = (STORED, BUSY, NAMED)
"""In the API server before anything is queried."""
PODS = (pod("p1", "busy"),)
NAMESPACES = ("own", "claimed")

TOP = quota("top", is_parent=True, min=amounts(64, 51200), tree="t1")
SUB = quota("sub", parent="top", tree="t1", min=amounts(60, 12800))
BROTHER = quota("brother", parent="top", tree="t1", min=amounts(4, 100))
LEAF = quota("leaf", annotations={"namespaces": '["n1","n2"]'})
STRICT = {"max-strict-check-resource-keys": '["cpu","memory"]'}
NEGATIVE = {"shared-weight": amounts(-1, 1)}
ROOT = quota(ROOT_QUOTA)
DEFAULT = quota(DEFAULT_QUOTA)
SYSTEM = quota(SYSTEM_QUOTA)

STEPS: Sequence[Step] = (
    fill("fill-top", TOP),
    fill("fill-empty", {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota", "metadata": {}}),
    fill("fill-root", ROOT),
    fill("fill-unknown-parent", quota("x", parent="nobody")),
    fill("fill-named-tree", quota("x", parent="nobody", tree="t")),
    fill("fill-weight-units", quota("x", max={"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": 8})),
    fill("fill-weight-aligned", quota("x", annotations={"shared-weight": {"cpu": "1", "disk": "2"}})),
    fill("fill-weight-kept", quota("x", annotations={"shared-weight": {"memory": 1, "cpu": "0.5"}})),
    fill("fill-weight-broken", quota("x", annotations={"shared-weight": "{"}), same_words=False),
    create("negative-max", quota("x", max=amounts(-1, 1))),
    create("negative-min", quota("x", min=amounts(-1))),
    create("min-not-in-max", quota("x", max=amounts(1), min=amounts(None, 1))),
    create("min-above-max", quota("x", max={"cpu": "1"}, min={"cpu": "1500m"})),
    create("weight-negative", quota("x", annotations=NEGATIVE)),
    create("weight-broken", quota("x", annotations={"shared-weight": "["}), same_words=False),
    create("used-above-max", quota("x", annotations=STRICT, used=amounts(None, 10485760))),
    create("used-not-in-max", quota("x", max=amounts(1), min={}, annotations=STRICT, used=amounts(None, 1))),
    create("strict-broken", quota("x", annotations={"max-strict-check-resource-keys": "{"}), same_words=False),
    create("top", TOP),
    create("top-again-elsewhere", quota("top", namespace="elsewhere")),
    fill("fill-inherits-tree", quota("x", parent="top")),
    create("other-tree", quota("x", parent="top", tree="t2")),
    create("no-tree", quota("x", parent="top")),
    create("unknown-parent", quota("x", parent="nobody")),
    create("other-max-keys", quota("x", parent="top", tree="t1", max=amounts(1), min={})),
    create("more-than-parent", quota("x", parent="top", tree="t1", min=amounts(65))),
    create("sub", SUB),
    create("more-than-left", quota("x", parent="top", tree="t1", min=amounts(5))),
    create("more-by-force", quota("x", parent="top", tree="t1", min=amounts(5), labels={"allow-force-update": "true"})),
    delete("forced", quota("x", parent="top", tree="t1")),
    create("brother", BROTHER),
    create("child-of-leaf", quota("x", parent="sub", tree="t1")),
    create("leaf", LEAF),
    create("namespace-taken", quota("x", annotations={"namespaces": '["n2"]'})),
    update(
        "namespaces-taken",
        SUB,
        changed(SUB) | {"metadata": {**SUB["metadata"], "annotations": LEAF["metadata"]["annotations"]}},
    ),
    update("nothing", SUB, changed(SUB, {"allow-lent-resource": "false"})),
    update("change-tree", SUB, changed(SUB, {"tree-id": "t2"})),
    update("change-min", SUB, changed(SUB, min=amounts(59, 12800))),
    update("change-min-too-much", SUB, changed(SUB, min=amounts(61, 12800))),
    update("less-than-children", TOP, changed(TOP, min=amounts(10, 51200))),
    update("leaf-with-children", TOP, changed(TOP, {"is-parent": "false"})),
    update("unknown-new-parent", SUB, changed(SUB, {"parent": "nobody"}, min=amounts(1, 1))),
    update("unknown", quota("y"), quota("y", min=amounts(1, 1))),
    update("parent-with-pods", BUSY, changed(BUSY, {"is-parent": "true"})),
    update("to-top", BROTHER, changed(BROTHER, {"parent": ROOT_QUOTA})),
    update("to-top-and-parent", SUB, changed(SUB, {"is-parent": "true"}, min=amounts(5, 5))),
    update("back-below-sub", changed(BROTHER, {"parent": ROOT_QUOTA}), changed(BROTHER, {"parent": "sub"})),
    create("root", ROOT),
    create("default", DEFAULT),
    create("system", SYSTEM),
    update("update-root", ROOT, changed(ROOT, min=amounts(1, 1))),
    update("update-system", SYSTEM, changed(SYSTEM, min=amounts(1, 1))),
    update("update-default", DEFAULT, changed(DEFAULT, min=amounts(1, 1))),
    review_pod("pod-in-leaf", pod("a", "leaf")),
    review_pod("pod-in-parent", pod("a", "top")),
    review_pod("pod-in-stored-parent", pod("a", "stored")),
    review_pod("pod-in-unknown", pod("a", "nobody")),
    review_pod("pod-by-namespace", pod("a", namespace="own")),
    review_pod("pod-by-claim", pod("a", namespace="claimed")),
    review_pod("pod-moves-to-leaf", pod("a", "leaf"), pod("a", "top")),
    review_pod("pod-moves-to-parent", pod("a", "top"), pod("a", "leaf")),
    review_pod("pod-preemptible", pod("a", "leaf", preemptible="false"), pod("a", "leaf")),
    delete("with-children", TOP),
    delete("with-pods", BUSY),
    delete("unknown-quota", quota("y")),
    delete("delete-root", ROOT),
    delete("delete-system", SYSTEM),
    delete("delete-default", DEFAULT),
    delete("leaf-goes", LEAF),
    create("namespace-free", quota("z", annotations={"namespaces": '["n2"]'})),
)

PASSES_WITH_US: Sequence[Step] = (
    fill("fill-weight-null", quota("x", annotations={"shared-weight": "null"})),
    review_pod("pod-stays-in-parent", pod("a", "top", more="labels"), pod("a", "top")),
    create("creation-tried-again", quota("z", annotations={"namespaces": '["n2"]'})),
)
PASSES_WITH_THE_ORIGINAL: Sequence[Step] = (
    update("below-itself", TOP, changed(TOP, {"parent": "sub"}, min=amounts(5, 5))),
)
