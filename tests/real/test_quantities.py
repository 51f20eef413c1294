"""The table of quantities, checked by a real kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from koordinator.api.kinds import CSI_STORAGE_CAPACITIES, NAMESPACES, PODS
from koordinator.api.quantity import Quantity
from tests.api.quantity_table import CANONICAL, REFUSED
from tests.real.control_plane import ControlPlane

_NAMESPACE = "quantities"
_CREATED, _BAD_REQUEST, _UNPROCESSABLE = 201, 400, 422
_NOT_NEGATIVE = [row for row in CANONICAL if Quantity.parse(row[0]).nanos >= 0]
_NEGATIVE = [row[0] for row in CANONICAL if Quantity.parse(row[0]).nanos < 0]


@pytest.fixture(scope="module")
def plane(real_control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The shared control plane with a namespace for this module, empty again afterwards."""
    real_control_plane.request("POST", NAMESPACES.path(), {"metadata": {"name": _NAMESPACE}})
    yield real_control_plane
    for kind in (PODS, CSI_STORAGE_CAPACITIES):
        real_control_plane.request("DELETE", kind.path(_NAMESPACE), {"gracePeriodSeconds": 0})


def _create_capacity(plane: ControlPlane, text: str) -> tuple[int, dict[str, Any]]:
    """A CSIStorageCapacity: the plainest kind with a quantity that is not rounded to thousandths."""
    document = {
        "apiVersion": CSI_STORAGE_CAPACITIES.api_version,
        "kind": CSI_STORAGE_CAPACITIES.name,
        "metadata": {"generateName": "quantity-"},
        "storageClassName": "any",
        "capacity": text,
    }
    return plane.request("POST", CSI_STORAGE_CAPACITIES.path(_NAMESPACE), document)


def _create_pod(plane: ControlPlane, text: str) -> tuple[int, dict[str, Any]]:
    resources = {"requests": {"cpu": text}}
    spec = {"containers": [{"name": "main", "image": "none", "resources": resources}]}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "quantity-"}, "spec": spec}
    return plane.request("POST", PODS.path(_NAMESPACE), document)


@pytest.mark.parametrize(("text", "canonical", "_"), _NOT_NEGATIVE)
def test_the_api_server_prints_the_same(plane: ControlPlane, text: str, canonical: str, _: str) -> None:
    status, response = _create_capacity(plane, text)
    assert (status, response.get("capacity")) == (_CREATED, canonical)


@pytest.mark.parametrize(("text", "_", "rounded"), _NOT_NEGATIVE)
def test_the_api_server_rounds_requests_the_same(plane: ControlPlane, text: str, _: str, rounded: str) -> None:
    status, response = _create_pod(plane, text)
    assert status == _CREATED, response
    assert response["spec"]["containers"][0]["resources"]["requests"]["cpu"] == rounded


@pytest.mark.parametrize("text", REFUSED)
def test_the_api_server_refuses_the_same(plane: ControlPlane, text: str) -> None:
    assert _create_capacity(plane, text)[0] == _BAD_REQUEST


@pytest.mark.parametrize("text", _NEGATIVE)
def test_the_api_server_reads_a_negative_amount_and_refuses_it_here(plane: ControlPlane, text: str) -> None:
    assert _create_capacity(plane, text)[0] == _UNPROCESSABLE
