"""Write ``responses.json`` anew: ``python -m tests.cluster.structural_schema.record KUBECONFIG`` of a real server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.cluster.structural_schema.talking import Speaker
from tests.real.schema_cases import DEFINITIONS, SPECS, STATUS_DEFINITIONS, TALKS


def record(kubeconfig: Path) -> None:
    speaker = Speaker(kubeconfig)
    responses = {
        "definitions": {name: speaker.decision(name) for name in (*DEFINITIONS, *STATUS_DEFINITIONS)},
        "specs": {name: speaker.decision_on_spec(name) for name in SPECS},
        "talks": {talk.name: speaker.talk(talk) for talk in TALKS},
    }
    file = Path(__file__).parent / "responses.json"
    file.write_text(json.dumps(responses, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
