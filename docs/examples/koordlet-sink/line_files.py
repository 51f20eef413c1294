"""Every sample of koordlet in InfluxDB's line protocol, in a file that Telegraf, Vector or vmagent reads.

    node_cpu_usage,node=node-1 value=1.5 1767225600000000000

``KOORDLET_SAMPLE_FILE`` names the file. At 16 MiB it becomes FILE.1, in place of the one before.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from koordinator.koordlet.observe.metric_cache.kinds import Round, Series
from koordinator.koordlet.observe.metric_cache.sinks import Sink

logger = logging.getLogger(__name__)

NAME = "example.com/line-files"
_MOST_BYTES = 16 << 20
_ESCAPED = str.maketrans({",": "\\,", "=": "\\=", " ": "\\ "})


def sink() -> Sink:
    """Called once, when koordlet starts."""
    file = LineFile(Path(os.environ.get("KOORDLET_SAMPLE_FILE", "/var/log/koordlet/samples.line")))
    return Sink(NAME, interval=10.0, write=file.write)


class LineFile:
    """A file of bounded size."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._problem = ""

    def write(self, node: str, rounds: Sequence[Round]) -> None:
        """A full disk costs the samples of these rounds. What is raised here switches the sink off for good."""
        text = "".join(line for each in rounds for line in lines(node, each))
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(text)
                is_full = file.tell() >= _MOST_BYTES
            if is_full:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._problem = ""
        except OSError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                logger.warning("samples are lost: %s", error)


def lines(node: str, measured: Round) -> Iterator[str]:
    """One line for each series, with its time in nanoseconds."""
    for series, value in measured.samples.items():
        yield f"{_name(node, series)} value={value!r} {measured.at}000000\n"


def _name(node: str, series: Series) -> str:
    labels = {"node": node, **dict(zip(series.kind.labels, series.values, strict=True))}
    tags = (f"{name}={text.translate(_ESCAPED)}" for name, text in labels.items() if text)
    return ",".join((series.kind.name, *tags))
