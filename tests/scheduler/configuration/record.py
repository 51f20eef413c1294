"""Write ``original_expansions.json`` anew: ``python -m tests.scheduler.configuration.record ORIGINAL_KOORD_SCHEDULER``.

The original logs its plugins before it queries any API server for anything, so that none is needed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).parent
RECORDING: Final = HERE / "original_expansions.json"
RECORDED: Final = ("every_plugin", "chart_profile", "kustomize_sample")
"""Files beside this one."""
_MARK: Final = '"the scheduler starts to work with those plugins" Plugins='
_SECONDS: Final = 30.0
_KUBECONFIG: Final = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "nobody", "user": {}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "nobody"}}],
    "current-context": "none",
}
Expansion = dict[str, list[str]]
"""Plugins by extension point; at score with their weights."""


def expansion(program: Path, configuration: dict[str, Any], folder: Path) -> Expansion:
    """What the original makes of a KubeSchedulerConfiguration. RuntimeError if it does not say it."""
    kubeconfig, file, log = folder / "kubeconfig", folder / "scheduler.yaml", folder / "scheduler.log"
    kubeconfig.write_text(json.dumps(_KUBECONFIG))
    given = {"clientConnection": {"kubeconfig": str(kubeconfig)}, "leaderElection": {"leaderElect": False}}
    file.write_text(yaml.safe_dump(configuration | given))
    flags = [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}", "-v=2"]
    command = [str(program), f"--config={file}", "--secure-port=0", "--port=0", *flags]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        return _read(log, process)
    finally:
        # It does not listen to SIGTERM.
        process.kill()
        process.wait()


def _read(log: Path, process: subprocess.Popen[bytes]) -> Expansion:
    end = time.monotonic() + _SECONDS
    while _MARK not in (text := log.read_text()):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"it has not said with which plugins it works: {text[-2000:]}")
        time.sleep(0.05)
    said, _ = json.JSONDecoder().raw_decode(text.partition(_MARK)[2])
    return {
        point[0].lower() + point[1:]: [_shown(point, each) for each in plugins["Enabled"] or ()]
        for point, plugins in said.items()
        if point != "MultiPoint"
    }


def _shown(point: str, plugin: dict[str, Any]) -> str:
    return f"{plugin['Name']}={plugin['Weight']}" if point == "Score" else str(plugin["Name"])


def configuration_in(file: Path) -> dict[str, Any]:
    """The configuration, which may be in a ConfigMap."""
    document: dict[str, Any] = yaml.safe_load(file.read_text())
    if document["kind"] == "ConfigMap":
        document = yaml.safe_load(document["data"]["koord-scheduler-config"])
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path)
    program = parser.parse_args().program
    with tempfile.TemporaryDirectory() as folder:
        found = {name: expansion(program, configuration_in(HERE / f"{name}.yaml"), Path(folder)) for name in RECORDED}
    rows = [
        f' "{name}": {{\n' + ",\n".join(f'  "{point}": {json.dumps(each)}' for point, each in points.items()) + "\n }"
        for name, points in found.items()
    ]
    RECORDING.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
