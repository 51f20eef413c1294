"""The whole program, as a process, with tools that are shell scripts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.device_daemon.machines import add_pci_device, npu_tools
from tests.free_ports import free_ports

SECONDS = 30.0


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A machine with two NPUs."""
    add_pci_device(tmp_path, "0000:c1:00.0", "19e5", "d802")
    for name in ("dev", "bin", "out"):
        (tmp_path / name).mkdir()
    for number in (0, 1):
        (tmp_path / f"dev/davinci{number}").touch()
    respond_with(tmp_path, npu_tools())
    return tmp_path


def respond_with(host: Path, tools: Mapping[str, str]) -> None:
    """The tools answer so from now on."""
    cases = "".join(f"'{command.partition(' ')[2]}') cat <<'END'\n{text}\nEND\n;;\n" for command, text in tools.items())
    script = host / "bin/npu-smi"
    made = host / "bin/.made"
    made.write_text(f'#!/bin/sh\ncase "$*" in\n{cases}*) echo "$*" >&2; exit 3;;\nesac\n')
    made.chmod(0o755)
    made.rename(script)


def start(host: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [
        sys.executable, "-m", "koordinator.device_daemon", "--host-root=", f"--sys-root-dir={host}/sys",
        f"--dev-root-dir={host}/dev", f"--prints-output-file={host}/out/ic-device", "--metrics-addr=0", *arguments,
    ]  # fmt: skip
    environment = {**os.environ, "PATH": f"{host}/bin:{os.environ['PATH']}"}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def read(host: Path) -> list[dict[str, Any]]:
    devices: list[dict[str, Any]] = json.loads((host / "out/ic-device").read_text())
    return devices


def wait_for(host: Path, uuids: list[str]) -> None:
    """For these devices to be the healthy ones. A reader polls while the file is written again and again; it must be
    whole every time."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            if [device["uuid"] for device in read(host) if device["status"]["healthy"]] == uuids:
                return
        except FileNotFoundError:
            pass
        time.sleep(0.005)
    raise AssertionError(f"no {uuids} within {SECONDS} s")


def test_once(host: Path) -> None:
    process = start(host, "--oneshot")
    _, log = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, log
    assert [device["uuid"] for device in read(host)] == ["npu-1-0", "npu-2-1"]


def test_once_with_a_tool_that_fails(host: Path) -> None:
    respond_with(host, {})
    process = start(host, "--oneshot")
    _, log = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "error getting huawei devices: npu-smi info -m: exit status 3, output 'info -m'" in log
    assert read(host) == []


def test_a_configuration_that_cannot_be_used_is_one_line(host: Path) -> None:
    (host / "config").write_text("version: v2")
    process = start(host, f"--config-file={host}/config")
    _, log = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert log.endswith("error parsing config file: unknown version: v2\n")
    assert "Traceback" not in log


def test_it_looks_again_reads_its_configuration_anew_and_takes_the_file_away(host: Path) -> None:
    config = host / "config"
    config.write_text("flags: {kdd: {sleepInterval: 10ms}}")
    process = start(host, f"--config-file={config}")
    wait_for(host, ["npu-1-0", "npu-2-1"])
    (host / "dev/davinci1").unlink()
    wait_for(host, ["npu-1-0"])
    config.write_text("flags: {kdd: {sleepInterval: never}}")
    process.send_signal(signal.SIGHUP)
    (host / "dev/davinci1").touch()
    wait_for(host, ["npu-1-0", "npu-2-1"])
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, log
    assert "the configuration stays as it was" in log
    assert list((host / "out").iterdir()) == []


def test_a_hangup_puts_a_new_interval_in_force(host: Path) -> None:
    config = host / "config"
    config.write_text("flags: {kdd: {sleepInterval: 1h}}")
    process = start(host, f"--config-file={config}")
    wait_for(host, ["npu-1-0", "npu-2-1"])
    config.write_text("flags: {kdd: {sleepInterval: 10ms}}")
    process.send_signal(signal.SIGHUP)
    for _ in range(3):
        # One look may be that of the signal; the others are the interval's.
        (host / "dev/davinci1").unlink()
        wait_for(host, ["npu-1-0"])
        (host / "dev/davinci1").touch()
        wait_for(host, ["npu-1-0", "npu-2-1"])
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, log


def test_it_ends_at_once_although_a_tool_hangs(host: Path) -> None:
    (host / "bin/npu-smi").write_text('#!/bin/sh\ntouch "$0.started"\nsleep 1000\n')
    process = start(host)
    deadline = time.monotonic() + SECONDS
    while not (host / "bin/npu-smi.started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0


def test_it_serves_what_it_has_found_and_whether_it_works(host: Path) -> None:
    (port,) = free_ports(1)
    process = start(host, f"--metrics-addr=127.0.0.1:{port}")
    try:
        wait_for(host, ["npu-1-0", "npu-2-1"])
        # The file is there an instant before the look counts as one that has ended.
        for path in ("readyz", "healthz", "livez"):
            assert get(port, path) == "ok"
        metrics = get(port, "metrics")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=SECONDS)
    lines = set(metrics.splitlines())
    assert 'koord_device_daemon_devices{healthy="true",vendor="huawei"} 2.0' in lines
    assert 'koord_device_daemon_discovery_failures_total{vendor="huawei"} 0.0' in lines
    assert 'loop_errors_total{loop="discovery"} 0.0' in lines


def get(port: int, path: str) -> str:
    """The text of a page, as soon as it is one of success."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=SECONDS) as response:
                return str(response.read().decode())
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def test_a_file_that_cannot_be_written_is_tried_again(host: Path) -> None:
    (host / "out").rmdir()
    (host / "out").touch()
    process = start(host, "--sleep-interval=10ms")
    assert process.stderr is not None
    while "ic-device" not in process.stderr.readline():
        assert process.poll() is None
    (host / "out").unlink()
    (host / "out").mkdir()
    wait_for(host, ["npu-1-0", "npu-2-1"])
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0
