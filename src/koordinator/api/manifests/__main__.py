"""``python -m koordinator.api.manifests [--check] [DIRECTORY]``: write config/crd, or say what is out of date in it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from koordinator.api.manifests import custom_resource_definitions


class _Dumper(yaml.SafeDumper):
    """Writes shared parts out every time: kubectl reads anchors, people do not."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 1 when ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m koordinator.api.manifests", description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("config/crd"))
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a file is out of date")
    options = parser.parse_args(arguments)
    wanted = manifest_files()
    if options.check:
        return _check(options.directory, wanted)
    options.directory.mkdir(parents=True, exist_ok=True)
    for name in _surplus(options.directory, wanted):
        (options.directory / name).unlink()
    for name, text in wanted.items():
        (options.directory / name).write_text(text)
    return 0


def manifest_files() -> dict[str, str]:
    """File name -> text, one file for each definition."""
    return {
        f"{definition['spec']['group']}_{definition['spec']['names']['plural']}.yaml": _to_yaml(definition)
        for definition in custom_resource_definitions()
    }


def _to_yaml(document: dict[str, Any]) -> str:
    body: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120)
    return f"# Written by `make manifests` from koordinator.api; change the types instead.\n{body}"


def _check(directory: Path, wanted: dict[str, str]) -> int:
    stale = _surplus(directory, wanted)
    for name, text in wanted.items():
        path = directory / name
        if not path.is_file() or path.read_text() != text:
            stale.append(name)
    for name in sorted(stale):
        sys.stderr.write(f"{directory / name} is out of date: run make manifests\n")
    return 1 if stale else 0


def _surplus(directory: Path, wanted: dict[str, str]) -> list[str]:
    return [path.name for path in directory.glob("*.yaml") if path.name not in wanted]


if __name__ == "__main__":
    sys.exit(main())
