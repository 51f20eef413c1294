"""What every file has to show after a step, by the formulas of koordlet's specification; no code under test is used.

Section numbers are those of the specification of koordlet's enforcing half.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, trunc
from typing import Any

from tests.real.cgroup2_steps.node_pods import (
    DISK,
    DISK_NUMBER,
    NO_QUOTA,
    NODE_CPUS,
    NODE_MEMORY,
    Amounts,
    ContainerCase,
    PodCase,
)

Document = dict[str, Any]
PAGE = 4096
_PERIOD = 100_000
_LEAST_QUOTA = 1000
"""What the kernel takes at least."""
_NEUTRAL = {"minLimitPercent": 0, "lowLimitPercent": 0, "throttlingPercent": 0, "oomKillGroup": 0}
"""Also what the policy ``auto`` says of the files of kernel.org's kernels."""
_CLASS_OF = {"LSE": "lsrClass", "LSR": "lsrClass", "LS": "lsClass", "BE": "beClass", "SYSTEM": "systemClass"}
_CLASS_OF_KUBERNETES = {"Guaranteed": "lsrClass", "Burstable": "lsClass", "BestEffort": "beClass"}
_FOLDER_OF = {"Guaranteed": "kubepods", "Burstable": "kubepods/burstable", "BestEffort": "kubepods/besteffort"}


@dataclass(frozen=True)
class Setting:
    """The node in a step. ``throttled`` are containers' folders whose processes want more than their quota."""

    policy: Document
    pods: list[PodCase]
    ratio: float | None
    cores: float
    closed: frozenset[str]
    throttled: frozenset[str]


def expected(setting: Setting, before: dict[str, str]) -> dict[str, str]:
    """Path -> text; what nobody writes is as it was."""
    after = dict(before)
    for pod in setting.pods:
        after.update(_batch(pod, setting) if pod.is_batch else _limits(pod, setting))
    after.update(_best_effort(setting, before))
    after.update(_memory(setting))
    for pod in setting.pods:
        after.update(_oom_scores(pod))
    after.update(_idle(setting))
    if "BlkIOReconcile" not in setting.closed:
        after.update(_disk(setting))
    system = setting.policy["systemStrategy"]
    after["min_free_kbytes"] = str(NODE_MEMORY // 1024 * system["minFreeKbytesFactor"] // 10_000)
    after["watermark_scale_factor"] = str(system["watermarkScaleFactor"])
    return after


def _weight(milli: int) -> str:
    """Section 3: milli-CPU to shares to weight."""
    shares = min(max(milli * 1024 // 1000, 2), 262_144)
    return str(min(max(1 + (shares - 2) * 9999 // 262_142, 1), 10_000))


def _quota(milli: int | None) -> int:
    return -1 if not milli else max(milli * _PERIOD // 1000, _LEAST_QUOTA)


def _divided(quota: int, ratio: float | None) -> int:
    """Sections 14.3 and 14.4."""
    return quota if quota < 0 or ratio is None or ratio <= 1 else max(ceil(quota / ratio), _LEAST_QUOTA)


def _cpu_max(quota: int) -> str:
    return NO_QUOTA if quota < 0 else f"{quota} {_PERIOD}"


def _is_held_to_quota(setting: Setting) -> bool:
    threshold = setting.policy["resourceUsedThresholdWithBE"]
    is_on = threshold["enable"] and "BECPUSuppress" not in setting.closed
    return bool(is_on and threshold["cpuSuppressPolicy"] == "cfsQuota")


def _best_effort(setting: Setting, before: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Section 6.3, round after round until nothing changes."""
    path = "kubepods/besteffort/cpu.max"
    if not _is_held_to_quota(setting):
        yield path, NO_QUOTA
        return
    threshold = setting.policy["resourceUsedThresholdWithBE"]
    budget = NODE_CPUS * 1000 * threshold["cpuSuppressThresholdPercent"] // 100 - trunc(setting.cores * 1000)
    budget = max(budget, NODE_CPUS * 1000 * threshold["cpuSuppressMinPercent"] // 100)
    wanted, node = max(budget * _PERIOD // 1000, 2000), NODE_CPUS * _PERIOD
    text = before[path].split()[0]
    quota = wanted if text == "max" else int(text)
    while abs(wanted - quota) >= node * 0.01 or (wanted == 2000 and quota != 2000):
        quota = min(wanted, quota + trunc(node * 0.1))
    yield path, _cpu_max(quota)
    for pod in setting.pods:
        if pod.kubernetes_qos == "BestEffort":
            yield f"{pod.folder}/cpu.max", NO_QUOTA
            yield from ((f"{pod.container_folder(each)}/cpu.max", NO_QUOTA) for each in pod.containers)


def _batch(pod: PodCase, setting: Setting) -> Iterator[tuple[str, str]]:
    """Section 14.3; with the gate off, what kubelet gives."""
    amounts = [each.amounts for each in pod.containers]
    if "BatchResource" in setting.closed:
        whole, parts = Amounts(), [Amounts()] * len(amounts)
    else:
        whole = Amounts(
            sum(each.cpu_request or 0 for each in amounts),
            sum(each.cpu_limit or 0 for each in amounts) if all(each.cpu_limit for each in amounts) else None,
            None,
            sum(each.memory_limit or 0 for each in amounts) if all(each.memory_limit for each in amounts) else None,
        )
        parts = amounts
    folders = [pod.folder, *map(pod.container_folder, pod.containers)]
    for folder, each in zip(folders, [whole, *parts], strict=True):
        yield f"{folder}/cpu.weight", _weight(each.cpu_request or 0)
        yield f"{folder}/memory.max", "max" if not each.memory_limit else str(each.memory_limit // PAGE * PAGE)
        quota = -1 if _is_held_to_quota(setting) else _divided(_quota(each.cpu_limit), setting.ratio)
        yield f"{folder}/cpu.max", _cpu_max(quota)


def _limits(pod: PodCase, setting: Setting) -> Iterator[tuple[str, str]]:
    """Sections 7, 14.2 and 14.4."""
    folders = [(each, pod.container_folder(each)) for each in pod.containers]
    if pod.qos in ("LSR", "LSE"):
        yield from ((f"{folder}/cpu.max", NO_QUOTA) for folder in (pod.folder, *(folder for _, folder in folders)))
        return
    config = _overlaid(setting.policy["cpuBurstStrategy"], pod, "cpuBurst")
    policy = "none" if "CPUBurst" in setting.closed else config["policy"]
    percent = config["cpuBurstPercent"] if policy in ("cpuBurstOnly", "auto") else 0
    ratio = None if pod.qos == "SYSTEM" or "CPUNormalization" in setting.closed else setting.ratio
    quotas, bursts = [], []
    for container, folder in folders:
        base = _divided(_quota(container.amounts.cpu_limit), ratio)
        quota = base
        if policy in ("cfsQuotaBurstOnly", "auto") and folder in setting.throttled:
            quota = trunc(base * config["cfsQuotaBurstPercent"] / 100)
        quotas.append(quota)
        # More than the quota is refused by the kernel.
        bursts.append(max(min(trunc((container.amounts.cpu_limit or 0) / 1000 * percent / 100 * _PERIOD), base), 0))
        yield f"{folder}/cpu.max", _cpu_max(quota)
        yield f"{folder}/cpu.max.burst", str(bursts[-1])
    if all(quota > 0 for quota in quotas):
        yield f"{pod.folder}/cpu.max", _cpu_max(sum(quotas))
    yield f"{pod.folder}/cpu.max.burst", str(sum(bursts))


def _overlaid(config: Document, pod: PodCase, annotation: str) -> Document:
    try:
        given = json.loads(pod.annotations.get(f"koordinator.sh/{annotation}", "{}"))
    except json.JSONDecodeError:
        given = {}
    return {**config, **{name: value for name, value in given.items() if value not in (None, "")}}


def _memory_config(pod: PodCase, policy: Document) -> Document:
    """Section 9: the class, the annotation's policy, the annotation's fields."""
    class_ = _CLASS_OF.get(pod.qos) or _CLASS_OF_KUBERNETES[pod.kubernetes_qos]
    config = _class_config(policy, class_)
    text = pod.annotations.get("koordinator.sh/memoryQOS", "{}")
    try:
        given = json.loads(text)
    except json.JSONDecodeError:
        return config
    if any(isinstance(value, int) and value < 0 for value in given.values()):
        return config
    if given.get("policy") == "none":
        return _NEUTRAL
    return {**(_NEUTRAL if given.get("policy") == "auto" else config), **given}


def _class_config(policy: Document, class_: str) -> Document:
    config: Document = policy["resourceQOSStrategy"][class_]["memoryQOS"]
    return config if config["enable"] else _NEUTRAL


def _protected(config: Document, requested: int) -> tuple[int, int]:
    """Bytes of memory.min and memory.low."""
    least, low = (requested * config[name] // 100 for name in ("minLimitPercent", "lowLimitPercent"))
    return least, max(low, least) if low else 0


def _memory(setting: Setting) -> Iterator[tuple[str, str]]:
    sums = {folder: [0, 0] for folder in _FOLDER_OF.values()}
    for pod in setting.pods:
        config = _memory_config(pod, setting.policy)
        requested = sum(each.amounts.memory_request or 0 for each in pod.containers)
        protected = _protected(config, requested)
        # The folder of Guaranteed pods holds those of the other classes.
        for folder in {"kubepods", _FOLDER_OF[pod.kubernetes_qos]}:
            sums[folder] = [total + amount for total, amount in zip(sums[folder], protected, strict=True)]
        yield from _memory_files(pod.folder, protected)
        yield f"{pod.folder}/memory.oom.group", str(config["oomKillGroup"])
        for container in pod.containers:
            if not container.is_sidecar:
                yield from _of_container(pod.container_folder(container), container, config)
    for folder, amounts in sums.items():
        yield from _memory_files(folder, (amounts[0], amounts[1]))
    for class_, folder in zip(("lsrClass", "lsClass", "beClass"), _FOLDER_OF.values(), strict=True):
        yield f"{folder}/memory.oom.group", str(_class_config(setting.policy, class_)["oomKillGroup"])


def _memory_files(folder: str, protected: tuple[int, int]) -> Iterator[tuple[str, str]]:
    for name, amount in zip(("memory.min", "memory.low"), protected, strict=True):
        yield f"{folder}/{name}", str(amount // PAGE * PAGE)


def _of_container(folder: str, container: ContainerCase, config: Document) -> Iterator[tuple[str, str]]:
    requested = container.amounts.memory_request or 0
    protected = _protected(config, requested)
    yield from _memory_files(folder, protected)
    yield f"{folder}/memory.oom.group", str(config["oomKillGroup"])
    percent = config["throttlingPercent"]
    limit = container.amounts.memory_limit or NODE_MEMORY
    high = (requested + (limit - requested) * percent // 100) // PAGE * PAGE
    text = "max" if percent == 0 else str(max(high, protected[0] // PAGE * PAGE))
    yield f"{folder}/memory.high", text


def _oom_scores(pod: PodCase) -> Iterator[tuple[str, str]]:
    """Section 14.7: removing an annotation reverts nothing."""
    by_name = json.loads(pod.annotations.get("koordinator.sh/oom-score-adj-spec", "{}"))
    text = pod.annotations.get("koordinator.sh/oom-score-adj", "")
    for container in pod.containers:
        score = by_name.get(container.name)
        if score is None and text.lstrip("-").isdecimal():
            score = int(text)
        if score is not None and -1000 <= score <= 1000:
            yield f"{pod.container_folder(container)}/oom_score_adj", str(score)


def _disk(setting: Setting) -> Iterator[tuple[str, str]]:
    """Section 11, in version 2's words (docs/differences.md): where a block cannot be used, nothing is released."""
    blocks = setting.policy["resourceQOSStrategy"]["beClass"].get("blkioQOS", {"enable": False})
    of_folders = [("kubepods/besteffort", blocks["blocks"] if blocks["enable"] else [])]
    for pod in setting.pods:
        if pod.qos:
            given = json.loads(pod.annotations.get("koordinator.sh/blkioQOS", "{}"))
            of_folders.append((pod.folder, given.get("blocks", [])))
    for folder, named in of_folders:
        usable = [block for block in named if block["name"] == f"/dev/{DISK}"]
        if usable or not named:
            yield f"{folder}/io.max", _io_max(usable[0]["ioCfg"]) if usable else ""


def _io_max(config: Document) -> str:
    words = []
    for word, name in (("rbps", "readBPS"), ("wbps", "writeBPS"), ("riops", "readIOPS"), ("wiops", "writeIOPS")):
        amount = config.get(name, 0)
        is_limit = amount and not (name.endswith("IOPS") and amount >= 2**32 - 1)
        words.append(f"{word}={amount if is_limit else 'max'}")
    return "" if all(word.endswith("=max") for word in words) else f"{DISK_NUMBER} {' '.join(words)}"


def _idle(setting: Setting) -> Iterator[tuple[str, str]]:
    """Section 15: the folders of classes; with the gate off, they are reset while the policy requests idle ones."""
    strategy = setting.policy["resourceQOSStrategy"]
    is_requested = strategy["policies"]["cpuPolicy"] == "coreSched"
    for class_, folder in zip(("lsrClass", "lsClass", "beClass"), _FOLDER_OF.values(), strict=True):
        is_idle = (
            is_requested and "CoreSched" not in setting.closed and strategy[class_]["cpuQOS"].get("schedIdle") == 1
        )
        yield f"{folder}/cpu.idle", str(int(is_idle))
        # The kernel shows this of a cgroup whose processes run when no others want to.
        yield f"{folder}/cpu.weight", "0" if is_idle else "100"
