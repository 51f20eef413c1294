from __future__ import annotations

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


def test_there_are_thirteen_kinds() -> None:
    assert len(_DEFINITIONS) == 13


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
