"""What is held is found where it was requested."""

from __future__ import annotations

import tracemalloc

from koordinator.base.profiling import HeapWatch


def allocate() -> list[bytes]:
    return [bytes(1000 + number) for number in range(50)]


def test_what_is_held_is_found() -> None:
    with HeapWatch() as watch:
        kept = allocate()
        held = watch.held()
    line = allocate.__code__.co_firstlineno + 1
    mine = [values for stack, values in held.items() if (stack[0].file, stack[0].line) == (__file__, line)]
    assert sum(objects for objects, _ in mine) >= len(kept)
    assert sum(size for _, size in mine) >= 50 * 1000


def test_what_was_given_back_is_not() -> None:
    with HeapWatch() as watch:
        allocate()
        held = watch.held()
    line = allocate.__code__.co_firstlineno + 1
    assert sum(size for stack, (_, size) in held.items() if stack[0].line == line and stack[0].file == __file__) < 5000


def test_no_account_is_kept_afterwards() -> None:
    with HeapWatch():
        assert tracemalloc.is_tracing()
    assert not tracemalloc.is_tracing()


def test_an_account_that_was_kept_before_goes_on() -> None:
    tracemalloc.start()
    try:
        with HeapWatch():
            pass
        assert tracemalloc.is_tracing()
    finally:
        tracemalloc.stop()
