"""System config: which setting of the kernel gets which value."""

from __future__ import annotations

from typing import Any

from koordinator.koordlet.qos.system_config import decide
from koordinator.node.kernel_files import MIN_FREE_KBYTES, SCHED_FEATURES, WATERMARK_SCALE_FACTOR, KernelFile
from tests.koordlet.qos.qos_fixtures import GIB, node, policy, snapshot


def values(**strategy: Any) -> dict[tuple[KernelFile, str], Any]:
    """By file and part, of a node with 64 GiB."""
    decided = decide(snapshot(policy=policy(systemStrategy=strategy), node=node(memory=64 * GIB)))
    assert decided.wishes is not None
    return {(wish.target.file, wish.target.part): wish.value for wish in decided.wishes}


def test_free_memory_is_in_ten_thousandths_of_all_in_kib() -> None:
    assert values(minFreeKbytesFactor=100)[MIN_FREE_KBYTES, ""] == 64 * 1024 * 1024 // 100


def test_what_the_policy_names_is_wished() -> None:
    assert values(watermarkScaleFactor=150)[WATERMARK_SCALE_FACTOR, ""] == 150


def test_switches_of_the_scheduler_are_wished_one_by_one() -> None:
    found = values(schedFeatures={"ID_ABSOLUTE_EXPEL": True, "ID_EXPELLER_SHARE_CORE": False})
    assert found[SCHED_FEATURES, "ID_ABSOLUTE_EXPEL"] == 1
    assert found[SCHED_FEATURES, "ID_EXPELLER_SHARE_CORE"] == 0


def test_without_a_policy_or_a_node_nothing_is_decided() -> None:
    assert decide(snapshot(policy=None, node=node())).wishes is None
    assert decide(snapshot(policy=policy(systemStrategy={}), node=None)).wishes is None
