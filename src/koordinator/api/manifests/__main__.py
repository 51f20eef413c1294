"""``python -m koordinator.api.manifests [--check] [DIRECTORY]``: write crd and webhook below config, or say what is out
of date there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.manifests.webhooks import webhook_configurations, webhook_service

_FOLDERS = ("crd", "webhook")


class _Dumper(yaml.SafeDumper):
    """Writes shared parts out every time: kubectl reads anchors, people do not."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 1 when ``--check`` finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m koordinator.api.manifests", description=__doc__)
    parser.add_argument("directory", type=Path, nargs="?", default=Path("config"))
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a file is out of date")
    options = parser.parse_args(arguments)
    wanted = manifest_files()
    if options.check:
        return _check(options.directory, wanted)
    for folder in _FOLDERS:
        (options.directory / folder).mkdir(parents=True, exist_ok=True)
    for name in _surplus(options.directory, wanted):
        (options.directory / name).unlink()
    for name, text in wanted.items():
        (options.directory / name).write_text(text)
    return 0


def manifest_files() -> dict[str, str]:
    """Path -> text: one file for each definition, one for all that webhooks need."""
    definitions = {
        f"crd/{definition['spec']['group']}_{definition['spec']['names']['plural']}.yaml": _to_yaml(definition)
        for definition in custom_resource_definitions()
    }
    return definitions | {"webhook/manifests.yaml": _to_yaml(webhook_service(), *webhook_configurations())}


def _to_yaml(*documents: dict[str, Any]) -> str:
    body: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120)
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
    found = (str(path.relative_to(directory)) for folder in _FOLDERS for path in (directory / folder).glob("*.yaml"))
    return [name for name in found if name not in wanted]


if __name__ == "__main__":
    sys.exit(main())
