"""Ports that are taken are named with their holder and the option that changes them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from koordinator.cli.ports import PortsTaken, PortUse, check_ports, free_ports


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening


def port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def test_free_ports_and_zero_are_fine() -> None:
    check_ports([PortUse(free_ports(1)[0], "the API", "--port"), PortUse(0, "health", "--health-port")])


def test_a_taken_port_is_named_with_its_holder_and_its_flag(listener: socket.socket) -> None:
    with pytest.raises(PortsTaken) as caught:
        check_ports([PortUse(port_of(listener), "the API", "--port")])
    assert f"port {port_of(listener)} (the API) is taken by process {os.getpid()} (" in str(caught.value)
    assert str(caught.value).endswith(": choose another with --port")


def test_all_taken_ports_are_named_at_once(listener: socket.socket) -> None:
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        with pytest.raises(PortsTaken) as caught:
            check_ports([PortUse(port_of(listener), "one", "--one"), PortUse(port_of(other), "other", "--other")])
    assert "--one" in str(caught.value)
    assert "--other" in str(caught.value)


def test_two_programs_cannot_have_one_port() -> None:
    (port,) = free_ports(1)
    with pytest.raises(PortsTaken, match="give --one and --other different ports"):
        check_ports([PortUse(port, "one", "--one"), PortUse(port, "other", "--other")])


def test_free_ports_differ() -> None:
    assert len(set(free_ports(5))) == 5
