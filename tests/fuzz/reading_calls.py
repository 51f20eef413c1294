"""Where the sources decode what comes from outside, found by what they call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import koordinator

SOURCES: Final = Path(koordinator.__file__).parent
PROGRAMS: Final = ("descheduler", "device_daemon", "koordlet", "manager", "runtime_proxy", "scheduler")
_PACKAGES: Final = (*PROGRAMS, "api", "base", "kube", "model", "node")
_OURS: Final = ("api/manifests", "api/kubernetes_types", "api/codec.py")
"""They read files of the distribution, or are the decoder."""
_CODEC: Final = frozenset({"decode", "decode_or", "decode_any", "decoder", "convert"})
_METHODS: Final = frozenset({"FromString", "ParseFromString", "MergeFromString"})
_FUNCTIONS: Final = frozenset(
    {"json.loads", "msgspec.json.decode", "msgspec.convert", "yaml.safe_load", "yaml.load", "yaml.load_all"}
)
_FILES: Final = frozenset({"read_file", "read_text", "read_integer", "read_optional_integer", "load_documents"})
_NAMED: Final = re.compile(
    r"\b(?:informer|"
    + "|".join({*_CODEC, *_METHODS, *_FILES, *(each.rpartition(".")[2] for each in _FUNCTIONS)})
    + r")\b"
)
"""What has none of these is not parsed, which takes long."""


def modules_that_decode() -> set[str]:
    """By their paths below the package: those of the programs and of what they share."""
    return {name for name, tree in _trees() if _decodes(tree)}


def kinds_of_informers(program: str) -> set[str]:
    """The names of the constants of kinds that the program's modules make informers of."""
    found: set[str] = set()
    for name, tree in _trees():
        if name.startswith(f"{program}/"):
            for call in _calls(tree):
                if isinstance(call.func, ast.Attribute) and call.func.attr == "informer" and call.args:
                    found |= {each.id for each in ast.walk(call.args[0]) if isinstance(each, ast.Name)}
    return {each for each in found if each.isupper()}


def _decodes(tree: ast.Module) -> bool:
    of_codec = _codec_names(tree)
    return any(_is_reading(call, of_codec) for call in _calls(tree))


@cache
def _trees() -> Sequence[tuple[str, ast.Module]]:
    return tuple(_parsed())


def _parsed() -> Iterator[tuple[str, ast.Module]]:
    for package in _PACKAGES:
        for file in sorted((SOURCES / package).rglob("*.py")):
            name, text = file.relative_to(SOURCES).as_posix(), file.read_text()
            if not name.startswith(_OURS) and not name.endswith("_pb2.py") and _NAMED.search(text):
                yield name, ast.parse(text)


def _calls(tree: ast.Module) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _codec_names(tree: ast.Module) -> set[str]:
    """What the module calls the functions of the codec."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "koordinator.api.codec":
            names |= {each.asname or each.name for each in node.names if each.name in _CODEC}
    return names


def _is_reading(call: ast.Call, of_codec: set[str]) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in of_codec or function.id in _FILES
    if not isinstance(function, ast.Attribute):
        return False
    text = ast.unparse(function)
    return function.attr in _METHODS or text in _FUNCTIONS or (text.startswith("codec.") and function.attr in _CODEC)
