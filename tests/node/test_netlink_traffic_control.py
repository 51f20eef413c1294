"""What is said of iptables and of a library that is missing; netlink itself is tested on a kernel (tests/real)."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from koordinator.node.errors import Unavailable
from koordinator.node.netlink_traffic_control import (
    NetlinkTrafficControl,
    _is_tree,
    _Library,
    _parameters,
    open_traffic_control,
)
from koordinator.node.traffic_control import Marking, Rule, Step, TrafficClass, TrafficControlError

LISTING = """\
-P POSTROUTING ACCEPT
-A POSTROUTING -m set --match-set ls_class src -j CLASSIFY --set-class 0001:0003
-A POSTROUTING -m set --match-set be_class src -j CLASSIFY --set-class 0001:000a
-A POSTROUTING -m set --match-set ls_class src -j CLASSIFY --set-class 0002:0003
-A POSTROUTING -m set --match-set ls_class dst -j CLASSIFY --set-class 0001:0003
-A POSTROUTING -s 10.0.0.0/8 -m set --match-set ls_class src -j CLASSIFY --set-class 0001:0003
-A POSTROUTING -m set --match-set ls_class src -j CLASSIFY --set-class none:none
-A POSTROUTING -o cni0 -j MASQUERADE
"""


class Connection:
    """Of the library; a node without any set."""

    def list(self) -> list[Any]:
        return []

    def close(self) -> None:
        return


class RefusedError(Exception):
    """The library's."""


class Iptables:
    """Answers all calls alike, and keeps them."""

    def __init__(self, status: int = 0, output: str = "", errors: str = "") -> None:
        self.response = status, output, errors
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, arguments: tuple[str, ...]) -> tuple[int, str, str]:
        self.calls.append(arguments)
        return self.response


def control(iptables: Any) -> NetlinkTrafficControl:
    return NetlinkTrafficControl(_Library(Connection, Connection, RefusedError), iptables)


def test_rules_that_are_like_ours_are_found() -> None:
    marking = control(Iptables(output=LISTING)).marking(frozenset())
    assert marking == Marking({}, frozenset({Rule("ls_class", 3), Rule("be_class", 10)}))


def test_a_rule_is_added_and_deleted_with_the_same_words() -> None:
    iptables = Iptables()
    connection = control(iptables)
    connection.do("eth0", Step("add", Rule("be_class", 10)))
    connection.do("eth0", Step("delete", Rule("be_class", 10)))
    added, deleted = iptables.calls
    assert added[:6] == ("-w", "5", "-t", "mangle", "-A", "POSTROUTING")
    assert added[6:] == ("-m", "set", "--match-set", "be_class", "src", "-j", "CLASSIFY", "--set-class", "1:a")
    assert (deleted[4], deleted[5:]) == ("-D", added[5:])


def test_without_iptables_the_marking_is_not_available() -> None:
    assert control(None).marking(frozenset()) == Unavailable(
        "iptables is not installed", "the program iptables, with the matches of ipset"
    )


def test_what_iptables_refuses_is_an_error_that_says_why() -> None:
    connection = control(Iptables(4, errors="iptables: Permission denied (you must be root).\n"))
    with pytest.raises(
        TrafficControlError, match=r"-S POSTROUTING: iptables: Permission denied \(you must be root\)\."
    ):
        connection.marking(frozenset())


def test_iptables_that_does_not_end_is_an_error() -> None:
    def hang(arguments: tuple[str, ...]) -> tuple[int, str, str]:
        raise subprocess.TimeoutExpired(arguments, 10)

    with pytest.raises(TrafficControlError, match="timed out after 10 seconds"):
        control(hang).marking(frozenset())


def test_a_library_that_is_not_installed_is_named() -> None:
    def load(_: str) -> Any:
        raise ImportError

    missing = open_traffic_control(load)
    assert isinstance(missing, Unavailable)
    assert "koordinator[network]" in missing.needs


def test_a_message_that_is_cut_off_is_no_tree() -> None:
    assert not _is_tree(b"")


@pytest.mark.parametrize(("rate", "burst"), [(1_000, 1600), (16_000_000, 1600), (125_000_000, 12_500)])
def test_a_burst_is_one_packet_or_a_ten_thousandth_of_a_second(rate: int, burst: int) -> None:
    given = _parameters(TrafficClass(minor=3, parent=1, rate=rate, ceil=rate, priority=0))
    assert (given["burst"], given["cburst"]) == (burst, burst)
