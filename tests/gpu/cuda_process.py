"""A program that holds memory of the first GPU, and computes on it while it is told to; with CUDA's driver alone.

    python -m tests.gpu.cuda_process MEBIBYTES

It prints ``ready`` when it has the memory. A line ``work`` on its standard input makes it compute until the line
``rest``; it ends with its input.
"""

from __future__ import annotations

import ctypes
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_FILLS: Final = 20
"""So many between two looks at the input."""


class CudaProcess:
    """One that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def work(self) -> None:
        self._notify("work")

    def rest(self) -> None:
        self._notify("rest")

    def _notify(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()


@contextmanager
def cuda_process(mebibytes: int) -> Iterator[CudaProcess]:
    """One that has its memory, until the block ends."""
    command = [sys.executable, "-m", "tests.gpu.cuda_process", str(mebibytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the CUDA process did not get its memory"
        yield CudaProcess(process)


def _main() -> None:
    size = int(sys.argv[1]) << 20
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    _check(cuda.cuInit(0))
    _check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    _check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(cuda.cuCtxSetCurrent(context))
    _check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while (line := sys.stdin.readline()) != "":
        while line == "work\n" and not select.select([sys.stdin], [], [], 0)[0]:
            _fill(cuda, memory, size)


def _fill(cuda: Any, memory: ctypes.c_uint64, size: int) -> None:
    """Fills are kernels, which occupy the multiprocessors."""
    for number in range(_FILLS):
        _check(cuda.cuMemsetD32_v2(memory, ctypes.c_uint(number), ctypes.c_size_t(size // 4)))
    _check(cuda.cuCtxSynchronize())


def _check(result: int) -> None:
    if result != 0:
        raise RuntimeError(f"CUDA's driver: error {result}")


if __name__ == "__main__":
    _main()
