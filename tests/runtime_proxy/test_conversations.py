"""Random conversations, valid and not, are the same directly and through the proxy: messages, statuses, trailers.

The runtime is grpcio's server, which conforms to gRPC; its responses depend on nothing but the request. A failure
prints the seed of its conversation and the number of the call in it, so that it can be had again.
"""

from __future__ import annotations

import asyncio
import hashlib
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from koordinator.api.protobuf import cri_pb2 as cri
from tests.examples import examples
from tests.runtime_proxy.fake_servers import FakeRuntime
from tests.runtime_proxy.proxied import proxied, run

_CALLS = examples(160)
_AT_ONCE = 8
_NAMES = (
    "Version Status RunPodSandbox StopPodSandbox RemovePodSandbox PodSandboxStatus ListPodSandbox "
    "CreateContainer StartContainer StopContainer RemoveContainer UpdateContainerResources ExecSync"
)
_METHODS = _NAMES.split()
_SERVICES = ("runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService", "runtime.v1.ImageService", "not.there.S")
_LENGTHS = (0, 1, 4, 5, 100, 16_379, 16_384, 65_530, 65_536, 200_000)
_CODES = [code for code in grpc.StatusCode if code is not grpc.StatusCode.OK]

_Call = tuple[str, bytes, tuple[tuple[str, str | bytes], ...]]


def _random_call(random: Random) -> _Call:
    service = random.choices(_SERVICES, (8, 3, 1, 1))[0]
    metadata: list[tuple[str, str | bytes]] = []
    if random.random() < 0.5:
        metadata.append(("x-text", "".join(random.choices("abc ,;%=", k=random.randrange(40))).strip() or "-"))
    if random.random() < 0.5:
        metadata.append(("x-any-bin", random.randbytes(random.randrange(300))))
    return f"/{service}/{random.choice(_METHODS)}", _random_message(random), tuple(metadata)


def _random_message(random: Random) -> bytes:
    kind = random.randrange(4)
    if kind == 0:
        return random.randbytes(random.choice(_LENGTHS))
    message = _valid_message(random).SerializeToString()
    if kind == 1:
        return message
    if kind == 2:
        # Cut in the middle, as it may be.
        return message[: random.randrange(len(message) + 1)]
    # With fields that this interface does not have.
    return message + b"\xba\x3e\x03new" + message[: random.randrange(3)]


def _valid_message(random: Random) -> Message:
    identifier = random.choice(("", "pod-1", "container-1", "nobody", "../../x", "é" * 100))
    labels = {f"key-{random.randrange(5)}": "v" * random.choice((0, 3, 3000)) for _ in range(random.randrange(4))}
    if random.random() < 0.5:
        config = cri.PodSandboxConfig(metadata={"name": identifier}, labels=labels, linux={"cgroup_parent": "/x"})
        return cri.RunPodSandboxRequest(config=config)
    resources = {"cpu_shares": random.randrange(-5, 1 << 40), "memory_limit_in_bytes": random.randrange(1 << 40)}
    return cri.CreateContainerRequest(pod_sandbox_id=identifier, config={"linux": {"resources": resources}})


class _Conforming(FakeRuntime):
    """Any of gRPC's statuses with details and trailers, or a message of any length, as the request's digest says."""

    async def respond(self, method: str, message: bytes, context: Any) -> bytes:
        received = sorted((key, value) for key, value in context.invocation_metadata() if key.startswith("x-"))
        digest = hashlib.sha256(repr((method, message, received)).encode()).digest()
        random = Random(digest)
        if random.random() < 0.3:
            await context.send_initial_metadata((("x-first", digest.hex()),))
        trailers = (("x-last", digest.hex()), ("grpc-status-details-bin", random.randbytes(random.randrange(200))))
        if random.random() < 0.4:
            text = "".join(random.choices("an error: 50 %\n\té«»", k=random.randrange(60)))
            await context.abort(random.choice(_CODES), text, trailers)
        context.set_trailing_metadata(trailers)
        return digest + random.randbytes(random.choice(_LENGTHS))


async def _outcome(client: grpc.aio.Channel, call: _Call) -> tuple[Any, ...]:
    method, message, metadata = call
    made = client.unary_unary(method)(message, metadata=metadata)
    try:
        response = bytes(await made)
    except grpc.aio.AioRpcError:
        response = b""
    first, last = await made.initial_metadata(), await made.trailing_metadata()
    return response, await made.code(), await made.details(), tuple(first or ()), tuple(last or ())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_response_is_the_same(seed: int) -> None:
    async def scenario() -> None:
        random = Random(seed)
        calls = [_random_call(random) for _ in range(_CALLS)]
        async with proxied(_Conforming()) as proxy:
            for start in range(0, _CALLS, _AT_ONCE):
                together = calls[start : start + _AT_ONCE]
                direct = await asyncio.gather(*(_outcome(proxy.direct, call) for call in together))
                through = await asyncio.gather(*(_outcome(proxy.client, call) for call in together))
                for number, (call, *outcomes) in enumerate(zip(together, direct, through, strict=True), start):
                    assert outcomes[0] == outcomes[1], f"seed {seed}, call {number}: {call[0]}, {call[1][:200]!r}"

    run(scenario())
