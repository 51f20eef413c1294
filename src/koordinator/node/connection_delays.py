"""By how much queues delay the TCP connections of a network namespace: what the kernel has measured of each of them.

The kernel keeps, of each connection, the smoothed round-trip time and the shortest one of the last minutes
(``net.ipv4.tcp_min_rtt_wlen``); what lies between them is spent in queues, and waiting for the peer. It is asked by
sock_diag(7), which answers for the namespace in which the asking socket was made. The thread that makes it enters the
namespace for that moment, so that it has to be a thread of its own, and root's.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import statistics
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from struct import Struct
from threading import Event
from typing import Final

from koordinator.node.errors import Unavailable
from koordinator.node.host import Host
from koordinator.node.netlink_messages import NLM_F_DUMP, NLMSG_DONE, NLMSG_ERROR, messages, request

MOST_CONNECTIONS: Final = 2048
"""That are looked at of one namespace: some 3 ms of work."""
NEEDS: Final = "root, and CONFIG_INET_TCP_DIAG of a kernel from 4.6 on"
_CLONE_NEWNET: Final = 0x40000000
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_ESTABLISHED: Final = 1 << 1
_INFO: Final = 2
"""INET_DIAG_INFO, an attribute: struct tcp_info."""
_REQUEST: Final = Struct("=BBBxI48x")
"""Family, protocol, which attributes, which states; any addresses."""
_MESSAGE_SIZE: Final = 72
"""Of struct inet_diag_msg, before the attributes."""
_DESTINATION: Final = slice(24, 40)
"""In struct inet_diag_msg."""
_ATTRIBUTE: Final = Struct("=HH")
"""Length with this header, type."""
_LAST_SENT, _RTT, _MIN_RTT = (Struct(f"={offset}xI") for offset in (44, 68, 148))
"""In struct tcp_info: milliseconds since data was sent last, and microseconds of the round trip."""
_UNKNOWN: Final = 0xFFFFFFFF
_LONGEST: Final = 1 << 16
_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)
_SECONDS: Final = 2.0

ReadDelays = Callable[[Host, Iterable[int], float], Awaitable[Mapping[int, float] | Unavailable]]
"""As ``read_delays``."""
DelaysIn = Callable[[int, int, float], list[float]]
"""Milliseconds of each connection in a namespace, of which a descriptor is given, that has sent something in so many
seconds; the second descriptor is of the thread's own namespace."""


def probe() -> Unavailable | None:
    """Why the kernel does not answer of the connections of this namespace; None if it does."""
    try:
        with _connection() as connection:
            next(_dump(connection, socket.AF_INET), None)
    except OSError as error:
        return Unavailable(f"sock_diag: {error.strerror or error}", NEEDS)
    return None


async def read_delays(
    host: Host, processes: Iterable[int], seconds: float, *, delays_in: DelaysIn | None = None
) -> Mapping[int, float] | Unavailable:
    """By process: the median, in milliseconds, over the connections in its network namespace that have sent something
    in the last ``seconds``; none where no connection has, or the process has ended, or the kernel did not answer of it.
    ``Unavailable`` where it answered of none."""
    # The thread ends with the round: one that could not leave a namespace must not do anything else.
    thread, is_over = ThreadPoolExecutor(max_workers=1, thread_name_prefix="connection delays"), Event()
    read = partial(_read, host, tuple(processes), seconds, delays_in or _delays_in, is_over)
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, read)
    finally:
        # A round that is cancelled does not wait for the kernel, for which everything else would have to wait, too.
        is_over.set()
        thread.shutdown(wait=False)


def _read(
    host: Host, processes: Iterable[int], seconds: float, delays_in: DelaysIn, is_over: Event
) -> Mapping[int, float] | Unavailable:
    found: dict[int, float] = {}
    problem, has_answered = None, False
    try:
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return Unavailable(f"/proc/thread-self/ns/net: {error.strerror}", NEEDS)
    try:
        for process in processes:
            if is_over.is_set():
                break
            try:
                delays = _of_process(f"{host.proc}/{process}/ns/net", own, seconds, delays_in)
            except (FileNotFoundError, ProcessLookupError):
                # It has ended.
                continue
            except OSError as error:
                problem = error
                continue
            has_answered = True
            if delays:
                found[process] = statistics.median(delays)
    finally:
        os.close(own)
    if problem is not None and not has_answered:
        return Unavailable(f"sock_diag in the network of a pod: {problem.strerror or problem}", NEEDS)
    return found


def _of_process(path: str, own: int, seconds: float, delays_in: DelaysIn) -> list[float]:
    entered = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return delays_in(entered, own, seconds)
    finally:
        os.close(entered)


def _delays_in(namespace: int, own: int, seconds: float) -> list[float]:
    """Milliseconds of each connection in a namespace that has sent something; both are descriptors."""
    _enter(namespace)
    try:
        connection = _connection()
    finally:
        _enter(own)
    with connection:
        every = (message for family in (socket.AF_INET, socket.AF_INET6) for message in _dump(connection, family))
        looked_at = islice(every, MOST_CONNECTIONS)
        return [delay for message in looked_at if (delay := delay_of(message, seconds)) is not None]


def delay_of(message: bytes, seconds: float) -> float | None:
    """Milliseconds, of a struct inet_diag_msg with its attributes; None for a connection of the loopback, for one that
    has sent nothing for so many seconds, and where the kernel does not say."""
    if len(message) < _MESSAGE_SIZE or is_loopback(message[_DESTINATION]):
        return None
    rest = message[_MESSAGE_SIZE:]
    while len(rest) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(rest)
        if length < _ATTRIBUTE.size:
            return None
        info = rest[_ATTRIBUTE.size : length]
        if kind == _INFO and len(info) >= _MIN_RTT.size:
            (last_sent,), (rtt,), (least,) = (field.unpack_from(info) for field in (_LAST_SENT, _RTT, _MIN_RTT))
            is_active = last_sent <= seconds * 1000 and least != _UNKNOWN
            return max(rtt - least, 0) / 1000 if is_active else None
        rest = rest[(length + 3) & ~3 :]
    return None


def is_loopback(address: bytes) -> bool:
    """Of 16 bytes, of which an IPv4 address has the first four, or the last."""
    is_v4 = address[4:] == bytes(12) or address[:12] == bytes(10) + b"\xff\xff"
    first = address[0] if address[4:] == bytes(12) else address[12]
    return address == bytes(15) + b"\1" or (is_v4 and first == 127)


def _connection() -> socket.socket:
    connection = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
    connection.settimeout(_SECONDS)
    return connection


def _enter(namespace: int) -> None:
    # os.setns is there from Python 3.12 on.
    if _LIBRARY.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _dump(connection: socket.socket, family: int) -> Iterator[bytes]:
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _ESTABLISHED)
    connection.send(request(_SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, body))
    while True:
        for kind, message in messages(connection.recv(_LONGEST)):
            if kind == NLMSG_ERROR:
                number = -int.from_bytes(message[:4], "little", signed=True)
                raise OSError(number, os.strerror(number))
            if kind == NLMSG_DONE:
                return
            yield message
