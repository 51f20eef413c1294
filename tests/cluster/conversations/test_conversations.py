"""The embedded API answers as the real kube-apiserver does, request by request."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from koordinator.cluster.server import ServerOptions
from tests.cluster.conversations.conversation import Conversation, every_conversation, play
from tests.cluster.embedded_thread import embedded_server

_NUMBERS = count()


@pytest.fixture(scope="module")
def shared_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # The real kube-apiserver has no controllers either: here the cases write the status of budgets.
    options = ServerOptions(disruption_controller=False, garbage_collector=False, missing_controller_warnings=False)
    with embedded_server(tmp_path_factory.mktemp("embedded"), options) as kubeconfig:
        yield kubeconfig


@pytest.mark.parametrize("conversation", every_conversation(), ids=str)
def test_conversation(shared_kubeconfig: Path, conversation: Conversation) -> None:
    responses = play(shared_kubeconfig, f"talk-{next(_NUMBERS)}", conversation)
    requests = [next(iter(request)) for request in conversation.requests]
    assert list(zip(requests, responses, strict=True)) == list(zip(requests, conversation.responses, strict=True))
