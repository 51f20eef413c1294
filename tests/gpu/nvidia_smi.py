"""What nvidia-smi says of the GPUs, to compare ours with."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree


@dataclass(frozen=True, slots=True)
class ListedGPU:
    """Memory is in MiB; ``processes`` have theirs by their number, None where it is hidden."""

    uuid: str
    minor: int
    model: str
    bus_id: str
    memory: int
    has_mig: bool
    processes: Mapping[int, int | None]


@dataclass(frozen=True, slots=True)
class Listing:
    """The whole machine."""

    driver_version: str
    gpus: tuple[ListedGPU, ...]


def list_gpus() -> Listing:
    """As ``nvidia-smi -q -x`` prints them now."""
    return parse(subprocess.run(["nvidia-smi", "-q", "-x"], check=True, capture_output=True, text=True).stdout)


def parse(document: str) -> Listing:
    root = ElementTree.fromstring(document)
    return Listing(_text(root, "driver_version"), tuple(_gpu(gpu) for gpu in root.iterfind("gpu")))


def _gpu(gpu: ElementTree.Element) -> ListedGPU:
    return ListedGPU(
        uuid=_text(gpu, "uuid"),
        minor=int(_text(gpu, "minor_number")),
        model=_text(gpu, "product_name"),
        bus_id=_text(gpu, "pci/pci_bus_id"),
        memory=_mebibytes(_text(gpu, "fb_memory_usage/total")),
        has_mig=_text(gpu, "mig_mode/current_mig") == "Enabled",
        processes={int(_text(process, "pid")): _used(process) for process in gpu.iterfind("processes/process_info")},
    )


def _used(process: ElementTree.Element) -> int | None:
    text = _text(process, "used_memory")
    return None if text == "N/A" else _mebibytes(text)


def _mebibytes(text: str) -> int:
    number, unit = text.split()
    assert unit == "MiB", text
    return int(number)


def _text(element: ElementTree.Element, path: str) -> str:
    text = element.findtext(path)
    assert text is not None, path
    return text.strip()
