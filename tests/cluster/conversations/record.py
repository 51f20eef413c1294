"""Ask a real kube-apiserver: ``python -m tests.cluster.conversations.record KUBECONFIG [FILE…]``."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

from tests.cluster.conversations.conversation import conversations, files, play, record


def main(kubeconfig: Path, chosen: list[str]) -> None:
    for file in chosen or files():
        record(
            file,
            {
                conversation.name.removeprefix(f"{file}-"): play(
                    kubeconfig, f"talk-{uuid.uuid4().hex[:8]}", conversation
                )
                for conversation in conversations(file)
            },
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
