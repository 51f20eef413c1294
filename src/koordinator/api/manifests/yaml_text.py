"""Documents as YAML for people and kubectl."""

from __future__ import annotations

from typing import Any, Final

import yaml

GENERATED = "# Written by `make manifests` from koordinator.api; change the types instead.\n"
# libyaml takes half the time where PyYAML was built with it, and writes the same.
_Base: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]
    """Writes shared parts out every time (kubectl reads anchors, people do not) and texts of several lines as such."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _reads_as_number(text) else None
    node: yaml.ScalarNode = dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)
    return node


def _reads_as_number(text: str) -> bool:
    """kubectl takes more for numbers than Python's YAML does: a namespace 1e3, for example."""
    for parse in (float, lambda digits: int(digits, 0)):
        try:
            parse(text)
        except ValueError:
            continue
        return True
    return False


_Dumper.add_representer(str, _text)


def generated_text(*documents: dict[str, Any]) -> str:
    """A file of documents that are made from types."""
    body: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120)
    return f"{GENERATED}{body}"


def scalar_text(value: str | int) -> str:
    """One value as it stands behind a key: quoted where YAML would take it for something else."""
    text: str = yaml.dump(value, Dumper=_Dumper, width=10_000)
    return text.removesuffix("\n").removesuffix("...").removesuffix("\n")
