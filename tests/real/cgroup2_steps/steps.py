"""The table: what is different in each step from a node where nothing special is requested."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.real.cgroup2_steps.node_pods import DISK

Document = dict[str, Any]
MEMORY = {"minLimitPercent": 0, "lowLimitPercent": 0, "throttlingPercent": 0, "oomKillGroup": 0}
CLASSES = ("lsrClass", "lsClass", "beClass", "systemClass")
RAISED_BY_HALF: Document = {"policy": "cfsQuotaBurstOnly", "cfsQuotaBurstPercent": 150}
BASE: Document = {
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressMinPercent": 0,
        "cpuSuppressPolicy": "cfsQuota",
    },
    "cpuBurstStrategy": {
        "policy": "none",
        "cpuBurstPercent": 100,
        "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    },
    "resourceQOSStrategy": {
        "policies": {"cpuPolicy": "groupIdentity"},
        **{
            name: {"cpuQOS": {"enable": False}, "memoryQOS": {"enable": True, **MEMORY}}
            if name != "systemClass"
            else {"memoryQOS": {"enable": True, **MEMORY}}
            for name in CLASSES
        },
    },
    "systemStrategy": {"minFreeKbytesFactor": 100, "watermarkScaleFactor": 150},
}
SLOW = 12
"""Seconds in which the quota of best-effort pods rises to any value, by a tenth of the node in each."""
QUIET = 0.5
"""Cores of the node that are in use, all by the system."""
GATES_OFF = frozenset({"BECPUSuppress", "CPUBurst", "BatchResource", "CPUNormalization", "CoreSched", "BlkIOReconcile"})


@dataclass(frozen=True)
class Step:
    """``slo`` is merged into BASE; annotations are by pod. ``invalid`` names the sections of the NodeSLO that cannot be
    used, ``closed`` the gates that are off: an agent that has others is started anew."""

    name: str
    slo: Document = field(default_factory=dict)
    annotations: Mapping[str, Document] = field(default_factory=dict)
    ratio: str | None = None
    cores: float = QUIET
    seconds: int = 4
    event: str = ""
    invalid: tuple[str, ...] = ()
    closed: frozenset[str] = frozenset()


def suppress(**settings: Any) -> Step:
    return Step(f"suppress {settings}", {"resourceUsedThresholdWithBE": settings}, seconds=SLOW)


def burst(**settings: Any) -> Step:
    return Step(f"burst {settings}", {"cpuBurstStrategy": settings})


def memory(class_: str, **settings: Any) -> Step:
    return Step(f"memory of {class_} {settings}", {"resourceQOSStrategy": {class_: {"memoryQOS": settings}}})


def system(**settings: Any) -> Step:
    return Step(f"system {settings}", {"systemStrategy": settings})


def annotated(pod: str, name: str, value: Any, slo: Document | None = None) -> Step:
    text = value if isinstance(value, str) else json.dumps(value)
    return Step(f"annotation {name} of {pod}: {text}", slo or {}, {pod: {f"koordinator.sh/{name}": text}})


def normalized(ratio: str, slo: Document | None = None) -> Step:
    return Step(f"normalization ratio {ratio} {slo or ''}", slo or {}, ratio=ratio)


def invalid(section: str, **settings: Any) -> Step:
    return Step(f"invalid {section} {settings}", {section: settings}, invalid=(section,))


def block(name: str, **config: int) -> Document:
    return {"name": name, "type": "device", "ioCfg": config}


def disk(name: str, *blocks: Document, enable: bool = True) -> Step:
    blkio = {"enable": enable, "blocks": list(blocks)}
    return Step(f"block I/O: {name}", {"resourceQOSStrategy": {"beClass": {"blkioQOS": blkio}}})


LIMITED = block(f"/dev/{DISK}", writeBPS=10 << 20)
UNKNOWN = block("/dev/sdz", writeBPS=1 << 20)
UNSUPPRESSED: Document = {"resourceUsedThresholdWithBE": {"enable": False}}
ALWAYS_BURST: Document = {"cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 80}}
IDLE_BATCH: Document = {
    "resourceQOSStrategy": {
        "policies": {"cpuPolicy": "coreSched"},
        "beClass": {"cpuQOS": {"enable": True, "schedIdle": 1}},
    }
}
IDLE_AND_LIMITED_BATCH: Document = {
    "resourceQOSStrategy": {
        **IDLE_BATCH["resourceQOSStrategy"],
        "beClass": {
            **IDLE_BATCH["resourceQOSStrategy"]["beClass"],
            "blkioQOS": {"enable": True, "blocks": [LIMITED]},
        },
    }
}
PROTECTED: Document = {
    "resourceQOSStrategy": {
        name: {"memoryQOS": {"minLimitPercent": 30, "lowLimitPercent": 60, "throttlingPercent": 50}} for name in CLASSES
    }
}

STEPS: list[Step] = [
    Step("nothing special", seconds=SLOW),
    *(suppress(cpuSuppressThresholdPercent=percent) for percent in (20, 40, 70, 100, 30, 5)),
    *(suppress(cpuSuppressThresholdPercent=10, cpuSuppressMinPercent=percent) for percent in (15, 60)),
    Step("suppress beside a busy system", cores=2.0, seconds=SLOW),
    suppress(enable=False),
    suppress(cpuSuppressThresholdPercent=45),
    # This kernel has no cpuset, so that CPUs cannot be taken away.
    suppress(cpuSuppressPolicy="cpuset"),
    suppress(cpuSuppressPolicy="nonsense"),
    invalid("resourceUsedThresholdWithBE", cpuSuppressThresholdPercent=400),
    *(burst(policy="cpuBurstOnly", cpuBurstPercent=percent) for percent in (10, 50, 100, 250)),
    burst(policy="cfsQuotaBurstOnly"),
    burst(policy="auto", cpuBurstPercent=60),
    burst(policy="none"),
    invalid("cpuBurstStrategy", policy="sometimes"),
    annotated("ls", "cpuBurst", {"policy": "cpuBurstOnly", "cpuBurstPercent": 30}),
    annotated("open", "cpuBurst", {"policy": "none"}, ALWAYS_BURST),
    annotated("plain", "cpuBurst", {"cpuBurstPercent": 20}, ALWAYS_BURST),
    annotated("ls", "cpuBurst", "{nonsense", ALWAYS_BURST),
    *(memory("lsClass", minLimitPercent=percent) for percent in (20, 100)),
    *(memory("lsClass", lowLimitPercent=percent) for percent in (30, 100)),
    memory("lsClass", minLimitPercent=75, lowLimitPercent=60),
    *(memory("lsClass", throttlingPercent=percent) for percent in (40, 100)),
    memory("lsClass", minLimitPercent=90, throttlingPercent=5),
    memory("lsClass", oomKillGroup=1),
    memory("lsClass", wmarkRatio=95, wmarkMinAdj=50, priorityEnable=1, priority=10),
    memory("lsrClass", minLimitPercent=40, lowLimitPercent=80, oomKillGroup=1),
    memory("lsrClass", throttlingPercent=60),
    memory("beClass", minLimitPercent=25),
    memory("beClass", lowLimitPercent=50, throttlingPercent=50, oomKillGroup=1),
    memory("systemClass", minLimitPercent=50, throttlingPercent=70),
    Step("memory of all", PROTECTED),
    Step(
        "memory of all, switched off",
        {
            "resourceQOSStrategy": {
                name: {"memoryQOS": {"enable": False, "minLimitPercent": 30, "oomKillGroup": 1}}
                for name in ("lsrClass", "lsClass", "beClass")
            }
        },
    ),
    invalid("resourceQOSStrategy", lsClass={"memoryQOS": {"minLimitPercent": 101}}),
    annotated("ls", "memoryQOS", {"policy": "none"}, PROTECTED),
    annotated("ls", "memoryQOS", {"policy": "auto"}, PROTECTED),
    annotated("ls", "memoryQOS", {"minLimitPercent": 35}),
    annotated("open", "memoryQOS", {"throttlingPercent": 70, "lowLimitPercent": 10}, PROTECTED),
    annotated("be-two", "memoryQOS", {"policy": "auto", "minLimitPercent": 15, "oomKillGroup": 1}),
    annotated("lse", "memoryQOS", "{nonsense", PROTECTED),
    annotated("lsr", "memoryQOS", {"minLimitPercent": -5}, PROTECTED),
    *(system(minFreeKbytesFactor=factor) for factor in (50, 200)),
    *(system(watermarkScaleFactor=factor) for factor in (10, 400)),
    invalid("systemStrategy", watermarkScaleFactor=4000),
    *(normalized(ratio) for ratio in ("1.20", "2.50", "1.00", "0.80")),
    normalized("1.50", UNSUPPRESSED),
    normalized("4.00", UNSUPPRESSED | ALWAYS_BURST),
    Step("no normalization any more", UNSUPPRESSED),
    normalized("nonsense", UNSUPPRESSED),
    *(annotated("ls", "oom-score-adj", score) for score in ("300", "-17", "5000", "low")),
    annotated("be-two", "oom-score-adj-spec", {"one": 900, "sidecar": 800}),
    Step("best-effort pods run when nobody else wants to", IDLE_BATCH),
    Step("nobody is idle any more"),
    disk("bytes written", LIMITED),
    disk("operations as well", block(f"/dev/{DISK}", writeBPS=10 << 20, readIOPS=500, writeIOPS=300)),
    disk("bytes read", block(f"/dev/{DISK}", readBPS=3 << 20)),
    disk("an unknown disk", UNKNOWN),
    disk("an unknown disk beside the known one", UNKNOWN, LIMITED),
    disk("as many operations as the kernel can count", block(f"/dev/{DISK}", readIOPS=2**32 - 1, writeIOPS=2**32 - 2)),
    disk("switched off", LIMITED, enable=False),
    annotated("ls", "blkioQOS", {"blocks": [block(f"/dev/{DISK}", readBPS=1 << 20, readIOPS=100)]}),
    annotated("be-two", "blkioQOS", {"blocks": [LIMITED]}, disk("of all", LIMITED).slo),
    annotated("plain", "blkioQOS", {"blocks": [LIMITED]}),
    Step("a pod comes", UNSUPPRESSED, event="come"),
    Step("a pod that has come, with the class held down", suppress(cpuSuppressThresholdPercent=50).slo),
    Step("a pod goes", PROTECTED, event="go"),
    Step("somebody else writes", PROTECTED | ALWAYS_BURST, event="others write", seconds=75),
    Step("a container that is throttled", UNSUPPRESSED | burst(**RAISED_BY_HALF).slo, event="burn"),
    Step("throttled on a busy node", UNSUPPRESSED | burst(**RAISED_BY_HALF).slo, cores=2.5, seconds=15),
    Step("throttled again", UNSUPPRESSED | burst(**RAISED_BY_HALF | {"policy": "auto"}).slo, event="throttle"),
    Step("nobody is throttled any more", UNSUPPRESSED, event="rest"),
    Step("before gates close", UNSUPPRESSED | ALWAYS_BURST | IDLE_AND_LIMITED_BATCH, ratio="2.00"),
    Step("gates are closed", UNSUPPRESSED | ALWAYS_BURST | IDLE_AND_LIMITED_BATCH, ratio="2.00", closed=GATES_OFF),
    Step("the class held down, with the gates closed", PROTECTED, closed=GATES_OFF),
    Step("gates are open again"),
]


def merged(base: Document, difference: Document) -> Document:
    return base | {
        name: merged(base[name], value) if isinstance(value, dict) and isinstance(base.get(name), dict) else value
        for name, value in difference.items()
    }


def in_force(steps: list[Step]) -> list[Document]:
    """The policy of each step: of a section that cannot be used, what it was before."""
    found: list[Document] = []
    for step in steps:
        policy = merged(BASE, step.slo)
        for section in step.invalid:
            policy[section] = found[-1][section]
        found.append(policy)
    return found
