"""``koord-scheduler``, and ``python -m koordinator.scheduler``."""

import sys

from koordinator.base.entry import entry

main = entry("koordinator.scheduler.main")

if __name__ == "__main__":
    sys.exit(main())
