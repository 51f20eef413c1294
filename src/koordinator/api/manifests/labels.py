"""The labels that Kubernetes recommends, which every object of an installation has: whose part it is, of which release,
and who installs it.

No selector names them: those that change from release to release could not be told from others by it.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

import koordinator
from koordinator.api.manifests.yaml_text import scalar_text

_PROGRAMS: Final = (
    "koord-scheduler",
    "koord-manager",
    "koord-descheduler",
    "koordlet",
    "koord-device-daemon",
    "koord-page",
)
_FILES_OF_PROGRAMS: Final = {
    "gpu-shared-resource-templates": "koord-scheduler",
    "manifests": "koord-manager",
    "slo-controller-config": "koord-manager",
    "webhook-configurations": "koord-manager",
}
"""Files that are not named after their program; ``manifests`` is that of the webhooks."""
_WHOLE: Final = "koordinator"
_METADATA: Final = re.compile(r"^metadata:\n(  name: .*\n)(  namespace: .*\n)?(?:  labels:\n)?", re.MULTILINE)


def name_and_component(path: str) -> tuple[str, str]:
    """Of the objects in a file: ``app.kubernetes.io/name`` is the program that they are for, or the whole."""
    file = PurePosixPath(path)
    program = _FILES_OF_PROGRAMS.get(file.stem) or next((each for each in _PROGRAMS if file.stem.startswith(each)), "")
    if program:
        return program, program.removeprefix("koord-")
    return _WHOLE, "crd" if file.parent.name == "crd" else file.stem


def recommended_labels(path: str) -> str:
    """The labels of the objects in a file that ``koord manifests`` prints, as lines below ``labels:``."""
    name, component = name_and_component(path)
    labels = {
        "name": name,
        "component": component,
        "part-of": _WHOLE,
        "instance": _WHOLE,
        "version": koordinator.__version__,
        "managed-by": "koord",
    }
    return "".join(f"    app.kubernetes.io/{label}: {scalar_text(value)}\n" for label, value in labels.items())


def labelled(text: str, lines: str) -> str:
    """Documents with these lines among the labels of each."""
    return _METADATA.sub(lambda found: f"metadata:\n{found[1]}{found[2] or ''}  labels:\n{lines}", text)
