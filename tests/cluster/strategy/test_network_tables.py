"""What ``kubectl get`` prints, as kube-apiserver v1.35 prints it of the same objects."""

from __future__ import annotations

from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.cluster.builtin import BUILTIN_RESOURCES
from tests.cluster.corpus import NOW

_SUBJECTS = [
    {"kind": "User", "name": "u"},
    {"kind": "ServiceAccount", "name": "s", "namespace": "q"},
    {"kind": "Group", "name": "g"},
]


def _cells(plural: str, obj: Document) -> list[Any]:
    """Without the age."""
    (resource,) = [resource for resource in BUILTIN_RESOURCES if resource.plural == plural]
    columns = [column.name for column in resource.strategy.columns()]
    cells = resource.strategy.row({"metadata": {"name": "x"}, **obj}, NOW)
    return [cell for name, cell in zip(columns, cells, strict=True) if name not in ("Name", "Age")]


@pytest.mark.parametrize(
    ("plural", "obj", "cells"),
    [
        ("endpoints", {}, ["<none>"]),
        (
            "endpoints",
            {"subsets": [{"addresses": [{"ip": f"10.0.0.{n}"} for n in range(1, 5)], "ports": [{"port": 80}]}]},
            ["10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 1 more..."],
        ),
        ("endpointslices", {"addressType": "IPv4", "endpoints": []}, ["IPv4", "<unset>", "<unset>"]),
        (
            "endpointslices",
            {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}, {"port": 81}]},
            ["IPv4", "80,81", "10.0.0.1"],
        ),
        ("ingresses", {"spec": {}}, ["<none>", "*", "", "80"]),
        (
            "ingresses",
            {"spec": {"ingressClassName": "c", "tls": [{}], "rules": [{"host": "a.com"}, {"host": "b.com"}]}},
            ["c", "a.com,b.com", "", "80, 443"],
        ),
        ("networkpolicies", {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}, ["a=b"]),
        ("networkpolicies", {"spec": {"podSelector": {}}}, ["<none>"]),
        (
            "rolebindings",
            {"roleRef": {"kind": "Role", "name": "r"}, "subjects": _SUBJECTS},
            ["Role/r", "u", "g", "q/s"],
        ),
        ("resourceclaims", {"spec": {}}, ["pending"]),
        ("resourceslices", {"spec": {"nodeName": "n", "driver": "d", "pool": {"name": "p"}}}, ["n", "d", "p"]),
        (
            "resourcequotas",
            {"status": {"hard": {"pods": "2", "limits.cpu": "1"}, "used": {"pods": "1", "limits.cpu": "0"}}},
            ["pods: 1/2", "limits.cpu: 0/1"],
        ),
    ],
)
def test_row(plural: str, obj: Document, cells: list[Any]) -> None:
    assert _cells(plural, obj) == cells
