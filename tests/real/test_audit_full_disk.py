"""The store of the audit on a disk that is full to the last block, which no limit of a process imitates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.modification import Cause
from koordinator.manager.audit.store import AuditStore, AuditStoreError
from tests.manager.audit.test_store import DAY, NOW, received

pytestmark = pytest.mark.real

_IN_NAMESPACE: Final = 'mount -t tmpfs -o size=4m audit "$1" && exec "$2" -c "$3" "$1"'
_MODULE: Final = "from tests.real.test_audit_full_disk import fill_and_wait; fill_and_wait()"
_BATCH: Final = 50


def fill_and_wait() -> None:
    """Fill the disk that is named first, and print how many records were kept of each batch after the age."""
    folder = Path(sys.argv[1])
    store = AuditStore(str(folder), 1 << 30, DAY)
    store.open()
    seconds = 0
    try:
        while True:
            _add(store, seconds)
            seconds += _BATCH
    except AuditStoreError as error:
        problem = str(error)
    with (folder / "others").open("wb", buffering=0) as others:
        others.write(bytes(os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize))
    store.close()
    store.open()
    later = [seconds + number * _BATCH + int(DAY.total_seconds()) for number in range(3)]
    kept = [_add(store, each) for each in later]
    store.close()
    sys.stdout.write(json.dumps({"problem": problem, "free": os.statvfs(folder).f_bavail, "kept": kept}))


def _add(store: AuditStore, seconds: int) -> int:
    at = NOW + timedelta(seconds=seconds)
    return store.add(
        [received(seconds + number, at=at, cause=Cause(text="x" * 900)) for number in range(_BATCH)],
        at,
    )


def test_records_that_have_aged_make_room_on_a_full_disk(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a disk needs root")
    command = ["unshare", "--mount", "sh", "-c", _IN_NAMESPACE, "sh", str(tmp_path), sys.executable, _MODULE]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["problem"].endswith("database or disk is full")
    assert (found["free"], found["kept"]) == (0, [_BATCH] * 3)
