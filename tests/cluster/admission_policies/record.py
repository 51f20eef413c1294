"""Write ``responses.json`` anew: ``python -m tests.cluster.admission_policies.record KUBECONFIG`` of a real server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.cluster.admission_policies.cases import BINDINGS, CASES, POLICIES
from tests.cluster.admission_policies.talking import Speaker


def record(kubeconfig: Path, file: Path) -> None:
    speaker = Speaker(kubeconfig)
    responses = {
        "policies": {name: speaker.policy(spec) for name, spec in POLICIES.items()},
        "bindings": {name: speaker.binding(spec) for name, spec in BINDINGS.items()},
        "cases": {name: speaker.case(name, case) for name, case in CASES.items()},
    }
    file.write_text(json.dumps(responses, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]), Path(__file__).parent / "responses.json")
