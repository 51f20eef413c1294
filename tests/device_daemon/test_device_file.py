"""The file: its bytes, and that nobody ever reads half of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.api.xpu_device_info import (
    P2PLink,
    XPUDeviceInfo,
    XPUStatus,
    XPUTopology,
    decode_devices,
    encode_devices,
)
from koordinator.device_daemon.device_file import DeviceFile, DeviceFileError

DEVICE = XPUDeviceInfo(
    vendor="huawei",
    model="Ascend-910B3",
    uuid="npu-2-0",
    minor="0",
    resources={"koordinator.sh/gpu-memory": "65536Mi", "huawei.com/npu-core": "20"},
    topology=XPUTopology(socket_id="-1", node_id="0", pcie_id="pci0000:c0", bus_id="0000:c1:00.0"),
    status=XPUStatus(healthy=True),
)
TEXT = """\
[
  {
    "vendor": "huawei",
    "model": "Ascend-910B3",
    "uuid": "npu-2-0",
    "minor": "0",
    "resources": {
      "huawei.com/npu-core": "20",
      "koordinator.sh/gpu-memory": "65536Mi"
    },
    "topology": {
      "socketID": "-1",
      "nodeID": "0",
      "pcieID": "pci0000:c0",
      "busID": "0000:c1:00.0"
    },
    "status": {
      "healthy": true
    }
  }
]"""


def test_the_bytes_are_the_originals() -> None:
    assert encode_devices([DEVICE]).decode() == TEXT


def test_characters_of_html_are_escaped_as_go_does() -> None:
    assert b'"model": "a\\u003cb\\u0026c"' in encode_devices([XPUDeviceInfo("v", "a<b&c", "u", "0")])


def test_what_is_absent_is_left_out() -> None:
    text = encode_devices([XPUDeviceInfo("v", "m", "u", "0")]).decode()
    assert text.split() == [
        "[",
        "{",
        '"vendor":',
        '"v",',
        '"model":',
        '"m",',
        '"uuid":',
        '"u",',
        '"minor":',
        '"0"',
        "}",
        "]",
    ]


def test_no_devices_are_an_empty_list() -> None:
    assert encode_devices([]) == b"[]"


def test_reading_gives_back_what_was_written() -> None:
    linked = XPUTopology(p2p_links=(P2PLink("1,2", "HCCS"),), must_honor_partition=True)
    devices = [DEVICE, XPUDeviceInfo("v", "m", "u", "1", topology=linked, status=XPUStatus(False, "A", "b"))]
    assert decode_devices(encode_devices(devices)) == devices


def test_the_file_is_there_as_a_whole_and_readable_by_all(tmp_path: Path) -> None:
    path = tmp_path / "ic-device"
    DeviceFile(str(path)).write([DEVICE])
    assert path.read_text() == TEXT
    assert path.stat().st_mode & 0o777 == 0o644


def test_nothing_but_the_file_is_among_those_that_koordlet_reads(tmp_path: Path) -> None:
    DeviceFile(f"{tmp_path}/ic-device").write([DEVICE])
    assert [path.name for path in tmp_path.iterdir() if not path.is_dir()] == ["ic-device"]


def test_a_reader_keeps_the_old_file_while_it_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ic-device"
    DeviceFile(str(path)).write([DEVICE])
    with path.open() as reader:
        DeviceFile(str(path)).write([])
        assert reader.read() == TEXT
    assert path.read_text() == "[]"


def test_at_the_end_nothing_is_left(tmp_path: Path) -> None:
    file = DeviceFile(f"{tmp_path}/ic-device")
    file.write([DEVICE])
    file.remove()
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "no/ic-device"
    with pytest.raises(DeviceFileError) as refused:
        DeviceFile(str(path)).write([])
    why = "No such file or directory"
    assert str(refused.value) == f"error printing: error atomically writing file '{path}': {why}"


def test_without_a_path_it_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    DeviceFile("").write([DEVICE])
    assert capsys.readouterr().out == TEXT + "\n"
