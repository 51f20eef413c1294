"""The pages of the documentation, taken apart: blocks, the shell commands among them, headings and links.

Every page is found by itself: README.md, CONTRIBUTING.md and all of docs/. A block that its author cannot have run says
so in the line before it: ``<!-- not run: needs a GPU -->``, which readers do not see; for all blocks of a page,
``<!-- not run on this page: needs a real cluster -->``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_MARKER: Final = re.compile(r"<!--\s*not run:\s*(.+?)\s*-->")
_PAGE_MARKER: Final = re.compile(r"<!--\s*not run on this page:\s*(.+?)\s*-->")
_CODE: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_FENCE: Final = re.compile(r"(\s*)(```+|~~~+)\s*([\w+-]*)")
_SHELLS: Final = frozenset({"sh", "bash", "shell", "console"})
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=\S*")
_DRAWING: Final = re.compile("[\u2500-\u257f\u25b2-\u25c4]")
_PROGRAMS: Final = frozenset(
    """kubectl koord koord-scheduler koord-manager koord-runtime-proxy
    make pip pipx uv python python3 curl go export cd cp mv mkdir rm cat
    openssl git sudo systemctl helm docker kind minikube k3s kubeadm crictl ctr apt apt-get dnf source""".split()  # noqa: SIM905
)
"""What begins a block without a language that is made of commands; other such blocks are output, files or drawings."""


@dataclass(frozen=True, slots=True)
class Block:
    """``line`` is that of its first line, counted from 1; ``not_run`` is the reason that its author gives."""

    line: int
    language: str
    text: str
    not_run: str = ""

    @property
    def is_shell(self) -> bool:
        if self.language:
            return self.language in _SHELLS
        if _DRAWING.search(self.text):
            return False
        words = next((text.split() for text in self.text.splitlines() if text.strip()), [])
        first = next((word for word in words if not _ASSIGNMENT.fullmatch(word)), "")
        return first in _PROGRAMS or first.startswith(".venv/bin/")


@dataclass(frozen=True, slots=True)
class Command:
    """One command as it is printed, continuation lines joined, its comment left out."""

    page: str
    line: int
    text: str
    not_run: str = ""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def words(self) -> Sequence[str]:
        """What the shell would make of it, assignments in front and all behind a pipe left out."""
        lexer = shlex.shlex(self.text, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if set(word) <= set("|&;<>()"):
                break
            if words or not _ASSIGNMENT.fullmatch(word):
                words.append(word)
        return words


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    text: str

    @property
    def blocks(self) -> Sequence[Block]:
        return tuple(_blocks(self.text))

    @property
    def commands(self) -> Sequence[Command]:
        """Those of its blocks."""
        for_all = _PAGE_MARKER.search(self.text)
        reason = for_all[1] if for_all else ""
        return tuple(
            Command(self.name, block.line + offset, text, block.not_run or reason)
            for block in self.blocks
            if block.is_shell
            for offset, text in _commands(block.text)
        )

    @property
    def mentioned(self) -> Sequence[Command]:
        """Commands of our programs in the middle of a sentence, such as ``koord up --nodes 100``."""
        found = []
        for code in _CODE.finditer(self.prose):
            text = " ".join(code[1].split())
            if re.match(r"koord(-scheduler|-manager)? .*--\w", text):
                line = self.prose.count("\n", 0, code.start()) + 1
                found.append(Command(self.name, line, text, "a mention"))
        return tuple(found)

    @property
    def prose(self) -> str:
        """The page with its blocks emptied, so that what stands in them is no heading and no link."""
        lines = self.text.splitlines()
        for block in self.blocks:
            for number in range(block.line - 1, block.line - 1 + len(block.text.splitlines())):
                lines[number] = ""
        return "\n".join(lines)


@cache
def pages() -> Sequence[Page]:
    """All of them, by name."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return tuple(Page(str(path.relative_to(ROOT)), path.read_text()) for path in found)


def _blocks(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    number, reason = 0, ""
    while number < len(lines):
        line = lines[number]
        if marker := _MARKER.search(line):
            reason = marker[1]
        elif fence := _FENCE.match(line):
            end = next(
                (at for at in range(number + 1, len(lines)) if lines[at].strip().startswith(fence[2])), len(lines)
            )
            yield Block(number + 2, fence[3].lower(), _dedented(lines[number + 1 : end]), reason)
            number, reason = end, ""
        elif _begins_indented(lines, number):
            end = number
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            yield Block(number + 1, "", _dedented(lines[number:end]), reason)
            number, reason = end - 1, ""
        elif line.strip():
            reason = ""
        number += 1


def _begins_indented(lines: Sequence[str], number: int) -> bool:
    if not lines[number].startswith("    ") or not lines[number].strip():
        return False
    before = next((line for line in reversed(lines[:number]) if line.strip()), "")
    # A paragraph of a list is indented as well.
    in_list = bool(re.match(r"\s*([-*+]|\d+[.)])\s", before)) or (
        before.startswith(" ") and _MARKER.search(before) is None
    )
    return not lines[number - 1].strip() and not in_list if number else False


def _dedented(lines: Sequence[str]) -> str:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:].rstrip() for line in lines).rstrip("\n") + "\n"


def _commands(text: str) -> Iterator[tuple[int, str]]:
    """Each with the number of its line in the block; heredocs and continued lines are one command."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        first, command = number, lines[number].removeprefix("$ ")
        while command.endswith("\\") and number + 1 < len(lines):
            number += 1
            command = f"{command[:-1].rstrip()} {lines[number].strip()}"
        if heredoc := re.search(r"<<-?\s*['\"]?(\w+)", command):
            while number + 1 < len(lines) and lines[number].strip() != heredoc[1]:
                number += 1
                command += f"\n{lines[number]}"
        else:
            command = _without_comment(command)
        if command.strip():
            yield first, command.strip()
        number += 1


def _without_comment(command: str) -> str:
    """Up to a ``#`` that begins a word outside of quotes."""
    quote = ""
    for at, letter in enumerate(command):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (not at or command[at - 1].isspace()):
            return command[:at]
    return command
