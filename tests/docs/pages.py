"""The pages of the documentation, taken apart: blocks, the shell commands among them, headings and links.

Every page is found by itself: README.md, CONTRIBUTING.md and all of docs/, charts/, config/ and benchmarks/. What its
author cannot have run, read or compared says so in the line before it, which readers do not see:

``<!-- not run: needs a GPU -->``
    the block; its commands are not run, or it is read by no program
``<!-- not run `helm`: needs Helm -->``
    the commands of the block that begin so
``<!-- not run on this page: needs a real cluster -->``
    all blocks of the page
``<!-- not compared: depends on the load -->``
    the block, which is what the command before it prints
``<!-- prints -->``
    it is that, and is compared with what the command prints

A reason that names a file of tests says where the like is run.
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
_MARKER: Final = re.compile(r"<!--\s*not run(?: `([^`]+)`)?:\s*(.+?)\s*-->")
_NOT_COMPARED: Final = re.compile(r"<!--\s*not compared:\s*(.+?)\s*-->")
_PRINTS: Final = re.compile(r"<!--\s*prints\s*-->")
_COMMENT: Final = re.compile(r"\s*<!--.*-->\s*")
_FOLDERS: Final = ("docs", "charts", "config", "benchmarks")
_PROMPT: Final = "$ "
_PAGE_MARKER: Final = re.compile(r"<!--\s*not run on this page:\s*(.+?)\s*-->")
_CODE: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_FENCE: Final = re.compile(r"(\s*)(```+|~~~+)\s*([\w+-]*)")
_SHELLS: Final = frozenset({"sh", "bash", "shell", "console"})
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=\S*")
_DRAWING: Final = re.compile("[\u2500-\u257f\u25b2-\u25c4]")
_PROGRAMS: Final = frozenset(
    """kubectl koord for stat jq make pip pipx uv python python3 curl go export cd cp mv mkdir rm cat
    openssl git sudo systemctl helm docker kind minikube k3s kubeadm crictl ctr apt apt-get dnf source""".split()  # noqa: SIM905
)
_FLAGS_ONLY: Final = frozenset(
    """koord-scheduler koord-manager koord-runtime-proxy koord-descheduler koordlet koord-device-daemon
    kube-controller-manager""".split()  # noqa: SIM905
)
"""With the next ones: what begins a block without a language that is made of commands; other such blocks are output,
files or drawings."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Why a block is not run: ``beginning`` is that of the commands that are meant; all when it is empty."""

    reason: str
    beginning: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """``line`` is that of its first line, counted from 1; ``marks`` are what its author says of why it is not run;
    ``between`` is the prose since the block before it."""

    line: int
    language: str
    text: str
    marks: tuple[Mark, ...] = ()
    not_compared: str = ""
    is_printed: bool = False
    between: str = ""

    @property
    def not_run(self) -> str:
        """The reason for the whole block."""
        return next((mark.reason for mark in self.marks if not mark.beginning), "")

    def reason_of(self, command: str) -> str:
        """Why the author does not have this command run; empty when it is run."""
        return next((mark.reason for mark in self.marks if command.startswith(mark.beginning)), "")

    @property
    def has_prompts(self) -> bool:
        """Whether it shows a session: commands after prompts, and below each what it prints."""
        return self.text.startswith(_PROMPT)

    @property
    def is_shell(self) -> bool:
        if self.language or self.has_prompts:
            return self.has_prompts or self.language in _SHELLS
        if _DRAWING.search(self.text):
            return False
        words = next((text.split() for text in self.text.splitlines() if text.strip()), [])
        first, *rest = [word for word in words if not _ASSIGNMENT.fullmatch(word)] or [""]
        # A sentence may begin with the name of a program.
        is_alone = first in _FLAGS_ONLY and all(word.startswith(("-", "&", "|")) for word in rest[:1])
        return is_alone or first in _PROGRAMS or first.startswith(".venv/bin/")


@dataclass(frozen=True, slots=True)
class Command:
    """One command as it is printed, continuation lines joined, its comment left out. ``prints`` is what the page says
    that it prints, empty where the page does not say."""

    page: str
    line: int
    text: str
    not_run: str = ""
    prints: str = ""

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
    def reason(self) -> str:
        """Why nothing of the page is run."""
        return found[1] if (found := _PAGE_MARKER.search(self.text)) else ""

    @property
    def commands(self) -> Sequence[Command]:
        """Those of its blocks."""
        return tuple(self._commands())

    def _commands(self) -> Iterator[Command]:
        blocks = self.blocks
        for block, after in zip(blocks, (*blocks[1:], None), strict=False):
            found = list(_commands(block.text, prompts=block.has_prompts)) if block.is_shell else []
            for number, (offset, text, printed) in enumerate(found):
                if number == len(found) - 1 and after is not None and after.is_printed:
                    printed = after.text
                reason = block.reason_of(text) or self.reason
                yield Command(self.name, block.line + offset, text, reason, printed)

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
    below = (path for folder in _FOLDERS for path in sorted((ROOT / folder).rglob("*.md")))
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *below]
    return tuple(Page(str(path.relative_to(ROOT)), path.read_text()) for path in found)


def _blocks(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    number = 0
    said: list[str] = []
    between: list[str] = []
    while number < len(lines):
        line = lines[number]
        if fence := _FENCE.match(line):
            end = next(
                (at for at in range(number + 1, len(lines)) if lines[at].strip().startswith(fence[2])), len(lines)
            )
            yield _block(number + 2, fence[3].lower(), lines[number + 1 : end], said, between)
            number, said, between = end, [], []
        elif _begins_indented(lines, number):
            end = number
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            yield _block(number + 1, "", lines[number:end], said, between)
            number, said, between = end - 1, [], []
        elif _COMMENT.fullmatch(line):
            said.append(line)
        elif line.strip():
            said = []
            between.append(line)
        number += 1


def _block(line: int, language: str, lines: Sequence[str], said: Sequence[str], between: Sequence[str]) -> Block:
    comments = "\n".join(said)
    marks = tuple(Mark(reason, beginning) for beginning, reason in _MARKER.findall(comments))
    not_compared = found[1] if (found := _NOT_COMPARED.search(comments)) else ""
    is_printed = _PRINTS.search(comments) is not None
    return Block(line, language, _dedented(lines), marks, not_compared, is_printed, " ".join(between))


def _begins_indented(lines: Sequence[str], number: int) -> bool:
    if not lines[number].startswith("    ") or not lines[number].strip():
        return False
    before = next((line for line in reversed(lines[:number]) if line.strip()), "")
    # A paragraph of a list is indented as well.
    in_list = bool(re.match(r"\s*([-*+]|\d+[.)])\s", before)) or (
        before.startswith(" ") and _COMMENT.fullmatch(before) is None
    )
    return not lines[number - 1].strip() and not in_list if number else False


def _dedented(lines: Sequence[str]) -> str:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:].rstrip() for line in lines).rstrip("\n") + "\n"


def _commands(text: str, *, prompts: bool) -> Iterator[tuple[int, str, str]]:
    """Each with the number of its line in the block and, where there are prompts, with what it prints; heredocs and
    continued lines are one command."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        first, command = number, lines[number].removeprefix(_PROMPT)
        while command.endswith("\\") and number + 1 < len(lines):
            number += 1
            command = f"{command[:-1].rstrip()} {lines[number].strip()}"
        if heredoc := re.search(r"<<-?\s*['\"]?(\w+)", command):
            while number + 1 < len(lines) and lines[number].strip() != heredoc[1]:
                number += 1
                command += f"\n{lines[number]}"
        else:
            command = _without_comment(command)
        number += 1
        printed: list[str] = []
        while prompts and number < len(lines) and not lines[number].startswith(_PROMPT):
            printed.append(lines[number])
            number += 1
        if command.strip():
            yield first, command.strip(), "\n".join(printed)


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
