"""The site that zensical makes of docs/, and its search as a reader's browser runs it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import quickjs

from tests.docs.pages import ROOT

CONFIGURATION: Final = ROOT / "zensical.toml"
SETUP, READY, QUERY, RESULT = range(4)
"""What the page and the worker of the search say to each other: the types of their messages."""
_WORKER: Final = """
var self = globalThis, replies = [];
self.postMessage = (message) => replies.push(message);
self.location = { href: "worker:?engine=engine" };
self.URL = class { constructor() { this.searchParams = { get: () => "engine" }; } };
self.importScripts = () => (0, eval)(engine);
"""


class SiteError(Exception):
    """The site cannot be built; the text says where in the pages the reason is."""


@dataclass(frozen=True)
class Document:
    """A page of the site: the addresses that it names, each with the attribute that has it, and its anchors."""

    name: str
    addresses: Sequence[tuple[str, str]]
    anchors: frozenset[str]


@dataclass(frozen=True)
class Site:
    folder: Path

    @cached_property
    def documents(self) -> Mapping[str, Document]:
        found = (path.relative_to(self.folder) for path in sorted(self.folder.rglob("*.html")))
        return {str(name): _document(str(name), (self.folder / name).read_text()) for name in found}

    @cached_property
    def search(self) -> Search:
        return Search(self.folder)


class Search:
    """The search of a built site: its own scripts over its own index, in a JavaScript engine."""

    def __init__(self, folder: Path) -> None:
        index = (folder / "search.json").read_text()
        self._items: list[dict[str, Any]] = json.loads(index)["items"]
        (engine,) = (folder / "assets/javascripts/workers").glob("search.*.js")
        self._script = quickjs.Context()
        self._script.set("engine", engine.read_text())
        self._script.eval(_WORKER)
        self._script.eval((folder / "assets/javascripts/search.js").read_text())
        assert self._reply(SETUP, index)["type"] == READY

    def find(self, question: str) -> list[str]:
        """The addresses of the sections that the page would list, the best first."""
        reply = self._reply(QUERY, json.dumps({"input": question}))
        assert reply["type"] == RESULT, reply
        return [self._items[item["id"]]["location"] for item in reply["data"]["items"]]

    def _reply(self, kind: int, data: str) -> dict[str, Any]:
        self._script.eval(f"replies = []; self.onmessage({{data: {{type: {kind}, data: {data}}}}})")
        while self._script.execute_pending_job():
            pass
        (reply,) = json.loads(self._script.eval("JSON.stringify(replies)"))
        return dict(reply)


def build(folder: Path) -> Site:
    """Build the site below ``folder``, as `make docs` does. Raises SiteError with what zensical says of the pages."""
    shutil.copytree(ROOT / "docs", folder / "docs")  # zensical takes no pages from elsewhere, and no links
    shutil.copy(CONFIGURATION, folder)
    return run(folder)


def run(folder: Path) -> Site:
    """Build the site whose configuration and pages are in ``folder``. Raises SiteError."""
    program = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)
    if built.returncode:
        said = re.sub(r"\x1b\[[0-9;]*m", "", built.stdout + built.stderr)
        raise SiteError(said.partition("Traceback")[0])
    return Site(folder / "build/site")


def navigation() -> list[dict[str, Any]]:
    """The tabs, each with what is in it."""
    return list(tomllib.loads(CONFIGURATION.read_text())["project"]["nav"])


def listed() -> list[str]:
    """The pages in the navigation, in its order, below docs/."""
    return list(_leaves(navigation()))


def _leaves(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, Mapping):
        yield from _leaves(list(entry.values()))
    elif isinstance(entry, Sequence):
        for each in entry:
            yield from _leaves(each)


class _Addresses(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[tuple[str, str]] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src", "srcset", "poster", "data") and value:
                self.addresses.append((f"{tag} {name}", value))
            elif name in ("id", "name") and value and tag != "meta":
                self.anchors.add(value)


def _document(name: str, text: str) -> Document:
    parser = _Addresses()
    parser.feed(text)
    return Document(name, tuple(parser.addresses), frozenset(parser.anchors))
