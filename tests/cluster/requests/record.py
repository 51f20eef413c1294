"""Ask a real kube-apiserver: ``python -m tests.cluster.requests.record KUBECONFIG``."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from tests.cluster.requests.cases import CASES
from tests.cluster.requests.exchange import Exchange, record


def main(kubeconfig: Path) -> None:
    exchange = Exchange(kubeconfig)
    record({name: exchange.play(f"odd-{uuid.uuid4().hex[:8]}", requests) for name, requests in CASES.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
