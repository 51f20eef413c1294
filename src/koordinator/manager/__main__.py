"""``koord-manager``, and ``python -m koordinator.manager``."""

import sys

from koordinator.base.entry import entry

main = entry("koordinator.manager.main")

if __name__ == "__main__":
    sys.exit(main())
