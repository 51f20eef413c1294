"""The very first lines of a program, which run before its modules are loaded; a module of its own, since it must not
load any either."""

import signal
from collections.abc import Callable
from importlib import import_module


def entry(module: str) -> Callable[[], int]:
    """The command of the program whose ``main`` is in ``module``; it returns the exit status."""

    def main() -> int:
        # Loading a program takes up to a second, in which there is nothing to end in good order: Ctrl-C ends it as it
        # ends any program, and not with a stack trace from the middle of an import.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        run: Callable[[], int] = import_module(module).main
        return run()

    return main
