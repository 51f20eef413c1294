"""While the writes of some pods fail, in each way in which people have seen that, the others are bound as fast as ever.

Time is simulated, and a Binding takes a second of it: what counts is who waits for whom, not how fast the machine is.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Final

import pytest
from msgspec.structs import replace

from koordinator.api.annotations import RESERVATION_ALLOCATED
from koordinator.api.pod import Pod
from tests.real_world.faulty_api_server import FAULTS, Fault, Rule, bindings
from tests.scheduler.broken_input.test_broken_objects import running_beside
from tests.scheduler.fakes import make_node, make_pod
from tests.scheduler.scheduler_api import SchedulerApi

GOOD: Final = 640
BAD: Final = 60
"""Of each kind."""
AT_MOST: Final = 1.1
"""The time that it may take, as a share of that beside the same pods without a fault."""
_STEP: Final = 0.25
_LONGEST: Final = 120.0
_SECOND: Final = Fault(delay=1.0)
_TRIED: Final = (
    "etcd or a webhook fails",
    "the server is overloaded",
    "a webhook takes half a minute",
    "there is never an answer",
)


def _pod(name: str, namespace: str, cpu: str = "10m", annotations: dict[str, str] | None = None) -> Pod:
    pod = make_pod(name, cpu=cpu, memory="1Mi")
    metadata = replace(pod.metadata, name=name, namespace=namespace, uid=name, annotations=annotations or {})
    return replace(pod, metadata=metadata)


def _bad(number: int) -> list[Pod]:
    """The Binding of the first fails, the annotation of the second before its Binding, the condition of the third."""
    return [
        _pod(f"unbound-{number}", "unbound"),
        # A Binding cannot take away what an earlier attempt has recorded.
        _pod(f"unprepared-{number}", "unprepared", annotations={RESERVATION_ALLOCATED: '{"uid":"gone"}'}),
        _pod(f"too-large-{number}", "too-large", cpu="1000"),
    ]


def _rules(fault: Fault) -> list[Rule]:
    return [
        bindings(fault, namespace="unbound"),
        Rule(fault, "patch", "pods", namespace="unprepared"),
        Rule(fault, "patch", "pods", "status", namespace="too-large"),
    ]


@cache
def seconds_until_bound(fault: str) -> float:
    """Until all good pods are bound beside the bad ones; beside bad ones that nothing befalls where no fault is
    named."""

    async def run() -> float:
        api = SchedulerApi()
        for node in "abcdef":
            api.store(make_node(node, cpu="200", memory="400Gi", pods="500"))
        rules = _rules(FAULTS[fault]) if fault else []
        api.faults.rules += [*rules, bindings(_SECOND)]
        fixture = running_beside(api)
        names = {f"good-{number}" for number in range(GOOD)}
        async with fixture.running():
            for number in range(GOOD):
                for pod in _bad(number) if number < BAD else ():
                    api.store(pod)
                api.store(_pod(f"good-{number}", "good"))
            began = fixture.clock.monotonic()
            while not names <= api.placed().keys():
                assert fixture.clock.monotonic() < began + _LONGEST, "others wait for ever"
                await fixture.until_idle(_STEP)
            taken = fixture.clock.monotonic() - began
            assert all(rule.hits for rule in rules)
            api.faults.rules.clear()
            # What hangs is given up.
            for _ in range(4):
                await fixture.until_idle(60)
        return taken

    return asyncio.run(run())


@pytest.mark.parametrize("fault", _TRIED)
def test_pods_are_bound_as_fast_beside_others_whose_writes_fail(fault: str) -> None:
    assert seconds_until_bound(fault) <= AT_MOST * seconds_until_bound("")
