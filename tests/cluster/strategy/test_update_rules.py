"""Updates of built-in kinds are refused for what kube-apiserver v1.35 refuses them for, and for nothing more."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from tests.cluster.corpus import admitted, in_namespace, resource_of

_IMMUTABLE = "field is immutable"
_TEMPLATE: Document = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
_JOB: Document = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "job"},
    "spec": {
        "parallelism": 2,
        "completions": 3,
        "completionMode": "Indexed",
        "template": {"spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}},
    },
}
_CLAIM: Document = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "claim"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}},
}
_BOUND = {"phase": "Bound", "capacity": {"storage": "1Gi"}}
_QUOTA: Document = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "quota"},
    "spec": {"hard": {"pods": "1"}, "scopes": ["Terminating"]},
}
_STATEFUL: Document = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "stateful"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": _TEMPLATE,
        "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": _CLAIM["spec"]}],
    },
}
_DEFINITION: Document = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "as.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Cluster",
        "names": {"plural": "as", "kind": "A"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}
_DAEMONS: Document = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "daemons"},
    "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": _TEMPLATE},
}
_GENERATION = "deprecated.daemonset.template.generation"


def _stored(given: Document, status: Document | None = None) -> Document:
    stored = in_namespace(copy.deepcopy(given))
    stored["metadata"]["uid"] = "u"
    resource_of(stored).strategy.decode(stored)
    admitted(stored)
    return stored if status is None else {**stored, "status": status}


def _updated(old: Document, path: Sequence[Any], value: Any) -> Document:
    new = copy.deepcopy(old)
    holder: Any = new
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    resource_of(new).strategy.decode(new)
    return admitted(new, copy.deepcopy(old))


def _refused(old: Document, path: Sequence[Any], value: Any) -> list[tuple[str, str]]:
    new = _updated(old, path, value)
    causes = resource_of(new).strategy.validate(new, old)
    return [(cause.field, cause.message) for cause in causes]


@pytest.mark.parametrize(
    ("path", "value", "causes"),
    [
        (["completions"], 2, []),
        (["completions"], 5, [("spec.completions", "5: can only be modified in tandem with spec.parallelism")]),
        (["completionMode"], "NonIndexed", [("spec.completionMode", f'"NonIndexed": {_IMMUTABLE}')]),
        (["completions"], None, [("spec.completions", "when completion mode is Indexed")]),
        (
            ["selector"],
            {"matchLabels": {"x": "y"}},
            [
                ("spec.selector", '{"matchLabels":{"x":"y"}}: `selector` not auto-generated'),
                ("spec.template.metadata.labels", "`selector` does not match template `labels`"),
                ("spec.selector", f'{{"matchLabels":{{"x":"y"}}}}: {_IMMUTABLE}'),
            ],
        ),
    ],
    ids=["in tandem", "alone", "mode", "none", "selector"],
)
def test_job(path: list[str], value: Any, causes: list[tuple[str, str]]) -> None:
    found = _refused(_stored(_JOB), ["spec", *path], value)
    assert [field for field, _ in found] == [field for field, _ in causes]
    assert all(message.endswith(end) for (_, message), (_, end) in zip(found, causes, strict=True))


@pytest.mark.parametrize(
    ("status", "size", "is_refused"),
    [(_BOUND, "1Gi", True), (_BOUND, "1025Mi", False), ({"phase": "Bound"}, "1", False)],
)
def test_a_claim_shrinks_to_no_less_than_it_has_got(status: Document, size: str, is_refused: bool) -> None:
    refusal = ("spec.resources.requests.storage", "Forbidden: field can not be less than status.capacity")
    found = _refused(_stored(_CLAIM, status), ["spec", "resources", "requests", "storage"], size)
    assert found == ([refusal] if is_refused else [])


def test_a_claim_keeps_the_mode_of_its_volume() -> None:
    found = _refused(_stored(_CLAIM), ["spec", "volumeMode"], "Block")
    assert found[-1] == ("volumeMode", f'Invalid value: "Block": {_IMMUTABLE}')


def test_a_scope_that_is_there_twice_counts_once() -> None:
    assert _refused(_stored(_QUOTA), ["spec", "scopes"], ["Terminating", "Terminating"]) == []
    assert [field for field, _ in _refused(_stored(_QUOTA), ["spec", "scopes"], [])] == ["spec.scopes"]


@pytest.mark.parametrize(("status", "is_refused"), [({"phase": "Bound"}, True), ({}, False)])
def test_stateful_set_keeps_its_claims_as_they_are(status: Document, is_refused: bool) -> None:
    found = _refused(_stored(_STATEFUL), ["spec", "volumeClaimTemplates", 0, "status"], status)
    assert [field for field, _ in found] == (["spec"] if is_refused else [])


@pytest.mark.parametrize(
    ("field", "value", "is_refused"), [("revisionHistoryLimit", -1, False), ("serviceName", "?", True)]
)
def test_stateful_set_says_of_a_change_that_it_is_one(field: str, value: Any, is_refused: bool) -> None:
    """Nothing else: neither whether the name is good, nor that no history has less than no revisions."""
    assert [where for where, _ in _refused(_stored(_STATEFUL), ["spec", field], value)] == (
        ["spec"] if is_refused else []
    )


def test_the_name_of_a_definition_is_looked_at_once() -> None:
    assert [field for field, _ in _refused(_stored(_DEFINITION), ["spec", "group"], "b.example.com")] == ["spec.group"]


def test_two_versions_of_a_definition_with_one_name() -> None:
    version = _DEFINITION["spec"]["versions"][0]
    found = _refused(_stored(_DEFINITION), ["spec", "versions"], [version, version])
    assert [field for field, _ in found] == ["spec.versions", "spec.versions", "status.storedVersions"]
    assert found[-1][1].endswith("must have the storage version v1")


def test_daemon_set_counts_its_templates_itself() -> None:
    old = _stored({**_DAEMONS, "metadata": {"name": "daemons", "annotations": {_GENERATION: "+7"}}})
    assert old["metadata"]["annotations"] == {_GENERATION: "7"}
    assert _updated(old, ["metadata", "annotations", _GENERATION], "9")["metadata"]["annotations"] == {_GENERATION: "7"}
    with pytest.raises(ApiError, match='parsing "x": invalid syntax'):
        _updated(old, ["metadata", "annotations", _GENERATION], "x")
