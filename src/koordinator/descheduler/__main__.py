"""``python -m koordinator.descheduler`` is ``koord-descheduler``."""

import signal
import sys


def main() -> int:
    """Run the program; its exit status."""
    # Until there is something to end in order, Ctrl-C ends this as it ends any program: not with a traceback from the
    # middle of an import.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from koordinator.descheduler.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
