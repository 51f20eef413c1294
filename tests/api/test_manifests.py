from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.manifests.__main__ import main

_COMMITTED = Path(__file__).resolve().parents[2] / "config"
_DEFINITIONS = {definition["metadata"]["name"]: definition for definition in custom_resource_definitions()}


def _schema(name: str, version: int = 0) -> dict[str, Any]:
    schema: dict[str, Any] = _DEFINITIONS[name]["spec"]["versions"][version]["schema"]["openAPIV3Schema"]["properties"]
    return schema


def test_the_committed_manifests_are_up_to_date() -> None:
    assert main(["--check", str(_COMMITTED)]) == 0


def test_a_stale_manifest_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path)])
    stale = tmp_path / "crd/scheduling.koordinator.sh_devices.yaml"
    stale.write_text("old")
    assert (main(["--check", str(tmp_path)]), capsys.readouterr().err) == (
        1,
        f"{stale} is out of date: run make manifests\n",
    )


def test_a_manifest_of_no_kind_is_removed(tmp_path: Path) -> None:
    surplus = tmp_path / "crd/gone.yaml"
    surplus.parent.mkdir()
    surplus.write_text("old")
    main([str(tmp_path)])
    assert not surplus.exists()


def test_there_are_fifteen_kinds() -> None:
    assert len(_DEFINITIONS) == 15


def test_groups_of_kubernetes_carry_their_approval() -> None:
    approved = {name for name, definition in _DEFINITIONS.items() if "annotations" in definition["metadata"]}
    assert approved == {
        "podgroups.scheduling.sigs.k8s.io",
        "elasticquotas.scheduling.sigs.k8s.io",
        "noderesourcetopologies.topology.node.k8s.io",
    }


@pytest.mark.parametrize("definition", _DEFINITIONS.values(), ids=_DEFINITIONS)
def test_exactly_one_version_is_stored(definition: dict[str, Any]) -> None:
    assert [version["storage"] for version in definition["spec"]["versions"]].count(True) == 1


_ORIGINAL_COLUMNS = {
    "reservations.scheduling.koordinator.sh": [
        ("Phase", ".status.phase", "string"),
        ("Age", ".metadata.creationTimestamp", "date"),
        ("Node", ".status.nodeName", "string"),
        ("TTL", ".spec.ttl", "string"),
        ("Expires", ".spec.expires", "string"),
    ],
    "podmigrationjobs.scheduling.koordinator.sh": [
        ("Phase", ".status.phase", "string"),
        ("Status", ".status.status", "string"),
        ("Age", ".metadata.creationTimestamp", "date"),
        ("Node", ".status.nodeName", "string"),
        ("Reservation", ".spec.reservationOptions.reservationRef.name", "string"),
        ("PodNamespace", ".spec.podRef.namespace", "string"),
        ("Pod", ".spec.podRef.name", "string"),
        ("NewPod", ".status.podRef.name", "string"),
        ("TTL", ".spec.ttl", "string"),
    ],
    "recommendations.analysis.koordinator.sh": [
        ("Age", ".metadata.creationTimestamp", "date"),
        ("Type", ".spec.target.type", "string"),
        ("Kind", ".spec.target.workload.kind", "string"),
        ("Name", ".spec.target.workload.name", "string"),
        ("LastUpdateTime", ".status.updateTime", "date"),
    ],
}


@pytest.mark.parametrize("name", _ORIGINAL_COLUMNS)
def test_the_columns_of_the_original_come_first_and_are_always_shown(name: str) -> None:
    columns = _DEFINITIONS[name]["spec"]["versions"][0]["additionalPrinterColumns"]
    wanted = _ORIGINAL_COLUMNS[name]
    first = columns[: len(wanted)]
    assert [(column["name"], column["jsonPath"], column["type"]) for column in first] == wanted
    assert all("priority" not in column for column in first)


def _leads_somewhere(schema: dict[str, Any], path: str) -> bool:
    for step in re.findall(r"(\w+)(?:\[\d+\])?", path):
        schema = schema.get("items", schema)
        schema = schema.get("properties", {}).get(step) or schema.get("additionalProperties") or {}
    return bool(schema)


@pytest.mark.parametrize("definition", _DEFINITIONS.values(), ids=_DEFINITIONS)
def test_a_column_shows_a_field_that_the_schema_has(definition: dict[str, Any]) -> None:
    for version in definition["spec"]["versions"]:
        paths = [column["jsonPath"] for column in version.get("additionalPrinterColumns", [])]
        own = [path for path in paths if not path.startswith(".metadata.")]
        assert [path for path in own if not _leads_somewhere(version["schema"]["openAPIV3Schema"], path)] == []


def test_a_quantity_is_a_number_or_a_text() -> None:
    quota = _schema("elasticquotas.scheduling.sigs.k8s.io")["spec"]["properties"]["max"]["additionalProperties"]
    assert (quota["x-kubernetes-int-or-string"], "pattern" in quota) == (True, True)


def test_a_template_is_not_looked_into() -> None:
    template = _schema("reservations.scheduling.koordinator.sh")["spec"]["properties"]["template"]
    assert {key: value for key, value in template.items() if key != "description"} == {
        "x-kubernetes-preserve-unknown-fields": True
    }


def test_a_field_is_described_by_its_docstring() -> None:
    topology = _schema("devices.scheduling.koordinator.sh")["spec"]["properties"]["devices"]["items"]["properties"]
    assert topology["topology"]["properties"]["nodeID"]["description"] == "The NUMA node."


def _undescribed(schema: dict[str, Any], path: str) -> list[str]:
    found = []
    for name, field in schema.get("properties", {}).items():
        at = f"{path}.{name}"
        if at != ".metadata" and not field.get("description") and not field.get("items", {}).get("description"):
            found.append(at)
        holder = field.get("items") or field.get("additionalProperties") or field
        found += _undescribed(holder, at) if isinstance(holder, dict) else []
    return found


@pytest.mark.parametrize("definition", _DEFINITIONS.values(), ids=_DEFINITIONS)
def test_kubectl_explain_has_a_text_for_every_field(definition: dict[str, Any]) -> None:
    for version in definition["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        assert schema["description"]
        assert _undescribed(schema, "") == []
