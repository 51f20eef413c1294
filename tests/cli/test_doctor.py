"""koord doctor: the table and the document, on made machines and on this one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordinator.cli.doctor import as_json, as_text
from koordinator.cli.main import main
from koordinator.node.cgroup_layout import CgroupDriver, CgroupVersion
from koordinator.node.errors import Unavailable
from koordinator.node.features import Feature, Machine, Undetermined, Works

MACHINE = Machine(
    kernel="6.1.0",
    architecture="x86_64",
    cgroup_version=CgroupVersion.V2,
    cgroup_driver=CgroupDriver.SYSTEMD,
    kubepods="kubepods.slice",
    is_root=False,
    features=(
        Feature("CPU burst", ("CPUBurst",), Works("cpu.max.burst")),
        Feature(
            "resctrl", ("RdtResctrl", "Resctrl"), Unavailable("the CPU has no cat_l3 " + "and so on " * 9, "a CPU")
        ),
        Feature("NRI", ("hooks",), Undetermined("/run/nri may not be read", "root")),
    ),
)


def test_the_table() -> None:
    assert (
        "\n".join(as_text(MACHINE, 60))
        == """\
kernel   6.1.0 on x86_64
cgroups  version 2, driver systemd, pods in kubepods.slice
user     not root: what only root can see is said to be unknown

works    CPU burst  cpu.max.burst
missing  resctrl
           because      the CPU has no cat_l3 and so on and
                        so on and so on and so on and so on
                        and so on and so on and so on and so
                        on
           it needs     a CPU
           off without  RdtResctrl, Resctrl
unknown  NRI
           because      /run/nri may not be read
           it needs     root
           off without  hooks

works: 1, missing: 1, unknown: 1"""
    )


def test_the_document_has_all_that_the_table_has() -> None:
    document = as_json(MACHINE)
    assert document["cgroupVersion"] == 2
    assert document["cgroupDriver"] == "systemd"
    assert document["features"][0] == {
        "name": "CPU burst",
        "usedBy": ["CPUBurst"],
        "state": "works",
        "detail": "cpu.max.burst",
    }
    assert document["features"][2] == {
        "name": "NRI",
        "usedBy": ["hooks"],
        "state": "unknown",
        "reason": "/run/nri may not be read",
        "needs": "root",
    }


def test_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert "CPU topology" in capsys.readouterr().out


def test_of_a_machine_below_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-o", "json", "--root", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["cgroupVersion"] is None
    assert {feature["state"] for feature in document["features"]} >= {"missing", "unknown"}
