"""``koordlet``, and ``python -m koordinator.koordlet``."""

import sys

from koordinator.base.entry import entry

main = entry("koordinator.koordlet.main")

if __name__ == "__main__":
    sys.exit(main())
