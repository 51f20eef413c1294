"""The very first lines of a program, which run before its modules are loaded; a module of its own, since it must not
load any either."""

import signal
import sys
from collections.abc import Callable
from importlib import import_module


def entry(module: str) -> Callable[[], int]:
    """The command of the program whose ``main`` is in ``module``; it returns the exit status.

    That is 1, with one line on stderr, where packages that the program needs are not installed.
    """
    extra = module.split(".")[1].replace("_", "-")

    def main() -> int:
        # Loading a program takes up to a second, in which there is nothing to end in good order: Ctrl-C ends it as it
        # ends any program, and not with a stack trace from the middle of an import.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            run: Callable[[], int] = import_module(module).main
        except ModuleNotFoundError as error:
            print(f"error: {what_is_missing(error, extra)}", file=sys.stderr)  # noqa: T201 - no log is configured yet
            return 1
        return run()

    return main


def what_is_missing(error: ModuleNotFoundError, extra: str) -> str:
    """In words: what the extra of the package with everything that a program needs has. Raises ``error`` where it is a
    module of the program itself."""
    if error.name is None or error.name.split(".")[0] == "koordinator":
        raise error
    return f"the module {error.name} is not installed: pip install 'koordinator[{extra}]'"
