"""Nothing in koordlet and node writes a kernel file but ``node/kernel_writer.py``, which the executor uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import koordinator

_SOURCE = Path(koordinator.__file__).parent
_WRITER = "node/kernel_writer.py"
_OWN_FILES = {
    "koordlet/report/audit/log.py",
    "koordlet/enforce/hooks/hook_server.py",
    "koordlet/observe/metric_cache/sqlite.py",
    "koordlet/observe/prediction/checkpoints.py",
    "koordlet/enforce/terway_files.py",
}
"""Modules that keep files of the agent's own, in folders that the user names, or files of another program."""
_METHODS = {"write_text", "write_bytes", "touch", "mkdir", "makedirs", "rmdir", "unlink", "mount"}
_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC"}


def _writes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _FLAGS | _METHODS:
            yield f"line {node.lineno}: {node.attr}"
        elif isinstance(node, ast.Call) and _opens_for_writing(node):
            yield f"line {node.lineno}: open for writing"


def _opens_for_writing(call: ast.Call) -> bool:
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    arguments = (*call.args[1:], *(keyword.value for keyword in call.keywords))
    return name == "open" and any(map(_is_mode_of_writing, arguments))


def _is_mode_of_writing(argument: ast.expr) -> bool:
    if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
        return False
    return len(argument.value) <= 3 and bool(set(argument.value) & set("wax+"))


def _modules() -> Iterator[tuple[str, str]]:
    for package in ("koordlet", "node"):
        for path in sorted((_SOURCE / package).rglob("*.py")):
            yield path.relative_to(_SOURCE).as_posix(), path.read_text()


def test_only_the_writer_opens_files_for_writing() -> None:
    found = {name: list(_writes(ast.parse(text))) for name, text in _modules() if name not in _OWN_FILES}
    assert {name for name, writes in found.items() if writes} == {_WRITER}


def test_nobody_else_uses_the_writer() -> None:
    users = {name for name, text in _modules() if "kernel_writer" in text and name != _WRITER}
    assert users == {
        "koordlet/agent_context.py",
        "koordlet/enforce/executor/executor.py",
        "koordlet/enforce/executor/kernel_view.py",
        "koordlet/enforce/executor/marks.py",
        "koordlet/main.py",
        "node/kidled.py",
        "node/writer_thread.py",
    }


def test_nobody_but_the_manager_of_cookies_gives_any() -> None:
    users = {name for name, text in _modules() if "CoreScheduling" in text and name != "node/core_scheduling.py"}
    assert users == {"koordlet/enforce/hooks/runtime_hooks.py", "koordlet/enforce/hooks/core_sched_cookies.py"}


def test_the_scan_sees_what_it_looks_for() -> None:
    source = "import os\nos.open('x', os.O_WRONLY)\nopen('x', 'w')\nPath('x').write_text('')\n"
    assert len(list(_writes(ast.parse(source)))) == 3
