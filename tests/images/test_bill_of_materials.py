"""What is added to the list of the distributions that are installed."""

from __future__ import annotations

import json
from pathlib import Path

from images.bill_of_materials import for_program, licences

_MSGSPEC = {"bom-ref": "msgspec==1", "name": "msgspec", "version": "1", "type": "library"}
_DEBIAN = {"bom-ref": "pkg:deb/debian/libc6@2", "name": "libc6", "version": "2", "type": "library"}


def test_an_image_depends_on_all_that_is_in_it() -> None:
    environment = {
        "components": [_MSGSPEC],
        "dependencies": [{"ref": "msgspec==1"}],
        "metadata": {"tools": {"components": []}},
    }
    made = json.loads(for_program(environment, "koordlet", "1.2.3", [_DEBIAN]))
    assert made["components"] == [_MSGSPEC, _DEBIAN]
    assert made["metadata"]["component"] == {
        "type": "container",
        "bom-ref": "koordlet",
        "name": "koordlet",
        "version": "1.2.3",
    }
    whole = {"ref": "koordlet", "dependsOn": ["msgspec==1", "pkg:deb/debian/libc6@2"]}
    assert made["dependencies"] == [{"ref": "msgspec==1"}, whole]


def test_licences_are_those_that_debian_names_else_the_file_that_has_them(tmp_path: Path) -> None:
    machine_readable = tmp_path / "machine-readable"
    machine_readable.write_text("Format: https://…\n\nLicense: Zlib\n text\n\nFiles: x\nLicense: MIT\nLicense: MIT\n")
    assert licences(machine_readable) == ["MIT", "Zlib"]
    prose = tmp_path / "prose"
    prose.write_text("This package was put together by somebody.\nLicense: see below\n")
    assert licences(prose) == [f"see {prose}"]
