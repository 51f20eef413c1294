"""The kubelet's list of pods: one that cannot be read costs nobody else anything."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from koordinator.node.kubelet import Kubelet, KubeletResponseError


def _pod(name: str, **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"}, **fields}


def _kubelet(body: bytes) -> Kubelet:
    async def get(path: str) -> bytes:
        return body

    return Kubelet(get)


def _listed(*pods: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "PodList", "items": pods}).encode()


def _names(kubelet: Kubelet) -> list[str]:
    return [pod.metadata.name for pod in asyncio.run(kubelet.pods())]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_pod("odd", spec={"containers": 5}), "pod shop/odd cannot be read and is left out"),
        ({**_pod("odd"), "metadata": 5}, "pod without readable metadata cannot be read"),
        ({"metadata": {"name": "odd", "namespace": "shop", "uid": "../../system.slice"}}, "has the UID '../../system"),
        ({"metadata": {"name": "odd", "namespace": "shop", "uid": "a\0b"}}, "pod shop/odd has the UID 'a\\x00b'"),
    ],
    ids=["no containers", "no metadata", "a UID that leads elsewhere", "a UID that is no name"],
)
def test_the_others_are_there(broken: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture) -> None:
    kubelet = _kubelet(_listed(_pod("before"), broken, _pod("after")))
    assert _names(kubelet) == ["before", "after"]
    assert said in caplog.text
    caplog.clear()
    assert _names(kubelet) == ["before", "after"]
    assert caplog.text == ""


@pytest.mark.parametrize("body", [b"", b"{", b"5", b'{"items":5}'])
def test_what_is_no_list_is_an_error(body: bytes) -> None:
    with pytest.raises(KubeletResponseError, match="kubelet's /pods/: "):
        _names(_kubelet(body))
