"""``koord what-if`` for the page: one at a time, in a process of its own, so that a simulation of a large cluster does
not hold up what the page shows meanwhile."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from koordinator.api.codec import DecodeError, decode
from koordinator.cli.explain_terminal import PAGE_TERMINAL, text_of
from koordinator.cli.page.viewers import Viewer
from koordinator.cli.what_if_report import conclusion_of, print_outcome
from koordinator.kube.pages import PageError, Request, Response, json_response

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?")
_OBJECT: Final = re.compile(r"[a-z]{2,40}/[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?")
_SECONDS: Final = 120.0
_MOST_WAITING: Final = 4
_BUSY: Final = {"Retry-After": "5"}
_STATUSES: Final = {2: 400, 3: 422, 4: 403}
"""Of the exit statuses of the command; any other failure is 502."""

Given = Mapping[str, Any]


def _nodes(given: Given) -> Sequence[str]:
    nodes = given.get("nodes")
    if not isinstance(nodes, list) or not nodes or len(nodes) > 100:
        raise _refusal("nodes: the names of one to a hundred nodes are needed")
    return [_text({"nodes": each}, "nodes", _NAME) for each in nodes]


def _count(given: Given, field: str, least: int) -> str:
    value = given.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 100_000:
        raise _refusal(f"{field}: {value!r} is not usable: a whole number from {least} to 100000 is needed")
    return str(value)


def _text(given: Given, field: str, form: re.Pattern[str]) -> str:
    value = given.get(field)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise _refusal(f"{field}: {value!r} is not usable as a name")
    return value


def _namespace(given: Given) -> Sequence[str]:
    return ("-n", _text(given, "namespace", _NAME)) if given.get("namespace") else ()


_CHANGES: Final[Mapping[str, Callable[[Given], Sequence[str]]]] = {
    "drain": lambda given: (*_nodes(given), *(("--force",) if given.get("force") is True else ())),
    "remove-node": _nodes,
    "add-node": lambda given: ("--like", _text(given, "like", _NAME), "--count", _count(given, "count", 1)),
    "scale": lambda given: (
        _text(given, "workload", _OBJECT),
        *("--replicas", _count(given, "replicas", 0)),
        *_namespace(given),
    ),
    "delete": lambda given: (_text(given, "object", _OBJECT), *_namespace(given)),
    "apply": _namespace,
    "fit": _namespace,
    "config": lambda given: ("--replay",) if given.get("replay") is True else (),
    "colocation": lambda given: (),
}
"""What the page may ask for -> the words of the command after its name."""
_WITH_FILE: Final = ("apply", "fit", "config", "colocation")
"""Those that take ``file``, the text of one."""


class WhatIfRuns:
    """Those of all viewers."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def respond(self, request: Request, viewer: Viewer) -> Response:
        """Simulate the change that a request asks for; its document is that of ``koord what-if -o json``."""
        try:
            given = decode(request.body, dict[str, Any])
        except DecodeError as error:
            raise _refusal(str(error)) from error
        words = self.words_of(given)
        if self._waiting >= _MOST_WAITING:
            raise PageError(429, "429: other simulations are still running; ask again in a moment\n", _BUSY)
        self._waiting += 1
        try:
            async with self._turn:
                return await self._run(words, given, viewer)
        finally:
            self._waiting -= 1

    def words_of(self, given: Given) -> list[str]:
        """The command for what is given, without its file. Raises PageError, which names the field."""
        change = given.get("change")
        if not isinstance(change, str) or change not in _CHANGES:
            raise _refusal(f"change: {change!r} is not known: {', '.join(_CHANGES)} are")
        if change in _WITH_FILE and not (isinstance(given.get("file"), str) and given["file"].strip()):
            raise _refusal("file: the text of one is needed")
        return ["what-if", change, *_CHANGES[change](given)]

    async def _run(self, words: Sequence[str], given: Given, viewer: Viewer) -> Response:
        with tempfile.TemporaryDirectory(prefix="koord-page-") as name:
            folder, files = Path(name), list[str]()
            if words[1] in _WITH_FILE:
                (folder / "given.yaml").write_text(given["file"])
                files = ["-f", str(folder / "given.yaml")]
            cluster = viewer.cluster_options(folder)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "koordinator.cli.main", *words, *files, *cluster, "-o", "json"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                out, error = await asyncio.wait_for(process.communicate(), _SECONDS)
            except TimeoutError:
                return json_response({"problem": f"the simulation has not ended after {_SECONDS:g} s"}, 504)
            finally:
                # A viewer who goes away, or a simulation without end, leaves no process behind.
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        said = error.decode(errors="replace").removeprefix("koord: ").strip()
        if process.returncode != 0:
            return json_response({"problem": said}, _STATUSES.get(process.returncode or 0, 502))
        document = PAGE_TERMINAL.readable(json.loads(out))
        console = PAGE_TERMINAL.console()
        print_outcome(document, console)
        found = {"document": document, "conclusion": conclusion_of(document), "text": text_of(console), "note": said}
        return json_response({**found, "command": " ".join(("koord", *words))})


def _refusal(text: str) -> PageError:
    return PageError(400, f"400: {text}\n")
