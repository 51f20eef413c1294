"""Who has a port, as the kernel shows it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from koordinator.base.port_holder import holder_of

TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1
   1: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4712 1
   2: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1
"""


def a_process(proc: Path, pid: int, inode: int, command: bytes) -> None:
    (proc / f"{pid}/fd").mkdir(parents=True)
    (proc / f"{pid}/cmdline").write_bytes(command)
    os.symlink(f"socket:[{inode}]", proc / f"{pid}/fd/3")


def test_the_process_that_listens_is_named_with_its_command(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(TCP)
    a_process(tmp_path, 7, 4712, b"client\0")
    a_process(tmp_path, 8, 4711, b"koord-manager\0--metrics-addr=:8080\0a b\0")
    assert holder_of(8080, tmp_path) == "process 8 (koord-manager --metrics-addr=:8080 'a b')"


def test_a_process_that_is_not_to_be_seen(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(TCP)
    assert holder_of(22, tmp_path).startswith("a process that is not to be seen")
    assert holder_of(22, tmp_path / "nowhere").startswith("a process that is not to be seen")


def test_this_very_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert holder_of(listener.getsockname()[1]).startswith(f"process {os.getpid()} (")
