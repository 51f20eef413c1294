"""Values against their types: what the real server says of an applied configuration that does not fit."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.kubernetes_types.table import kind_type
from koordinator.cluster.managed_fields.field_set import compare, difference, paths
from koordinator.cluster.managed_fields.schema import Atom, TypedError, of_definition, of_kind
from koordinator.cluster.managed_fields.typed import check, to_set
from tests.cluster.managed_fields.sequences import DEFINITION, Gadgets

_SCHEMA = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
_GADGET = of_definition(_SCHEMA, preserves_unknown=False)
_KIND = Gadgets()


def _built_in(kind: str, api_version: str = "v1") -> Atom:
    object_type = kind_type(api_version, kind)
    assert object_type is not None
    return of_kind(object_type)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("ConfigMap", {"spec": {}}, ".spec: field not declared in schema"),
        ("ConfigMap", {"data": {"a": 1}}, ".data.a: expected string, got &value.valueUnstructured{Value:1}"),
        ("ConfigMap", {"data": {"a": {"b": "c"}}},
         '.data.a: expected string, got &value.valueUnstructured{Value:map[string]interface {}{"b":"c"}}'),
        ("ConfigMap", {"data": [True]}, ".data: expected map, got &{[true]}"),
        ("ConfigMap", {"immutable": "yes"}, ".immutable: expected boolean, got &{yes}"),
        ("ConfigMap", {"metadata": {"generation": "1"}},
         ".metadata.generation: expected numeric (int or float), got string"),
        ("ConfigMap", {"metadata": {"finalizers": ["a", "a"]}},
         '.metadata.finalizers: duplicate entries for key [="a"]'),
        ("Pod", {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": "x"}]}]}},
         '.spec.containers[name="c"].ports[containerPort="x",protocol="TCP"].containerPort: '
         "expected numeric (int or float), got string"),
        ("Pod", {"spec": {"containers": {}}}, ".spec.containers: expected list, got &{map[]}"),
        ("Pod", {"spec": {"containers": [{"nam": 1}], "nodeNam": "x"}},
         'errors:\n  .spec.containers[name=""].nam: field not declared in schema\n'
         "  .spec.nodeNam: field not declared in schema"),
    ],
)  # fmt: skip
def test_what_does_not_fit(kind: str, value: Any, message: str) -> None:
    with pytest.raises(TypedError) as refused:
        check(_built_in(kind), value)
    assert str(refused.value) == message


@pytest.mark.parametrize("value", [{"data": None}, {"data": {"a": None}}, {"metadata": {"labels": {}}}, {}])
def test_null_fits_everything(value: Any) -> None:
    check(_built_in("ConfigMap"), value)


def test_a_quantity_may_be_a_number_or_a_text() -> None:
    for value in (1, "1", 1.5):
        check(_built_in("ResourceQuota"), {"spec": {"hard": {"cpu": value}}})


@given(st.randoms(use_true_random=False))
def test_what_was_not_there_is_added_and_what_goes_is_removed(random: Random) -> None:
    obj = _KIND.body(random)
    there, gone = compare(_GADGET, {}, obj), compare(_GADGET, obj, {})
    assert (there.added, there.removed, there.modified) == (gone.removed, {}, {})
    assert difference(to_set(_GADGET, obj), there.added) == {}


@given(st.randoms(use_true_random=False))
def test_comparisons_the_other_way_round(random: Random) -> None:
    one, other = _KIND.body(random), _KIND.body(random)
    there, back = compare(_GADGET, one, other), compare(_GADGET, other, one)
    assert (there.added, there.removed, there.modified) == (back.removed, back.added, back.modified)
    assert not compare(_GADGET, one, one)


@given(st.randoms(use_true_random=False))
def test_every_changed_field_is_one_of_the_object(random: Random) -> None:
    one, other = _KIND.body(random), _KIND.body(random)
    everything = set(paths(compare(_GADGET, {}, other).added))
    assert set(paths(compare(_GADGET, one, other).changed)) <= everything


@pytest.mark.parametrize(("kind", "path"), [("Pod", "nodeSelector"), ("Service", "selector")])
def test_some_fields_of_built_in_kinds_are_owned_as_a_whole(kind: str, path: str) -> None:
    assert to_set(_built_in(kind), {"spec": {path: {"a": "b"}}}) == {"f:spec": {f"f:{path}": {}}}


def test_references_are_owned_as_a_whole_but_for_those_that_say_otherwise() -> None:
    volume = {"spec": {"claimRef": {"name": "x"}, "csi": {"nodeStageSecretRef": {"name": "x"}}}}
    assert to_set(_built_in("PersistentVolume"), volume) == {
        "f:spec": {"f:claimRef": {"f:name": {}}, "f:csi": {"f:nodeStageSecretRef": {}}}
    }
