from __future__ import annotations

import pytest

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.canonical import WrongType, canonicalize
from koordinator.api.kubernetes_types.table import ObjectType, kind_type
from koordinator.api.kubernetes_types.unknown_fields import unknown_fields


def _type(api_version: str, kind: str) -> ObjectType:
    found = kind_type(api_version, kind)
    assert found is not None
    return found


POD = _type("v1", "Pod")
LEASE = _type("coordination.k8s.io/v1", "Lease")


def _container(**fields: object) -> Document:
    pod: Document = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", **fields}]}}
    canonicalize(pod, POD)
    container: Document = pod["spec"]["containers"][0]
    return container


def test_quantities_get_their_canonical_text() -> None:
    container = _container(resources={"limits": {"cpu": 0.5, "memory": "1024Mi"}})
    assert container["resources"]["limits"] == {"cpu": "500m", "memory": "1Gi"}


def test_zero_values_that_may_be_omitted_disappear() -> None:
    assert _container(stdin=False, workingDir="", args=[]) == {"name": "a", "resources": {}}


def test_nulls_are_as_absent() -> None:
    assert _container(args=None, livenessProbe=None) == {"name": "a", "resources": {}}


def test_pointers_keep_their_zero() -> None:
    assert _container(securityContext={"privileged": False})["securityContext"] == {"privileged": False}


def test_times_are_cut_to_seconds_in_utc() -> None:
    pod: Document = {"metadata": {"creationTimestamp": "2026-01-01T02:00:00.9+02:00"}, "spec": {"containers": []}}
    canonicalize(pod, POD)
    assert pod["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"renewTime": "2026-01-01T00:00:00Z"}, 'cannot parse "Z" as ".000000"'),
        ({"renewTime": 5}, "json: cannot unmarshal number into Go struct field LeaseSpec.spec.renewTime"),
        ({"leaseDurationSeconds": "5"}, "json: cannot unmarshal string into Go struct field"),
        ({"leaseDurationSeconds": 2**31}, "json: cannot unmarshal number 2147483648 into Go struct field"),
        ({"leaseDurationSeconds": True}, "json: cannot unmarshal bool into Go struct field"),
        ([], "json: cannot unmarshal array into Go struct field"),
    ],
)
def test_wrong_types_are_refused(spec: object, message: str) -> None:
    with pytest.raises(WrongType) as refused:
        canonicalize({"metadata": {}, "spec": spec}, LEASE)
    assert message in str(refused.value)


def test_unknown_fields_are_named_with_their_path() -> None:
    pod: Document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"nam": 1}, "spec": {"containers": [{"imag": 1}]}}
    assert unknown_fields(pod, POD) == ["metadata.nam", "spec.containers[0].imag"]
