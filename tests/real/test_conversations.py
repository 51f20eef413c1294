"""The recorded conversations are what the real kube-apiserver says: the embedded API is held to them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.cluster.conversations.conversation import Conversation, every_conversation, play


@pytest.mark.parametrize("conversation", every_conversation(), ids=str)
def test_conversation(real_cluster: Path, conversation: Conversation) -> None:
    requests = [next(iter(request)) for request in conversation.requests]
    responses = play(real_cluster, f"talk-{uuid.uuid4().hex[:8]}", conversation)
    assert list(zip(requests, responses, strict=True)) == list(zip(requests, conversation.responses, strict=True))
