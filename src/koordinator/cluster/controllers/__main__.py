"""``python -m koordinator.cluster.controllers``."""

import sys

from koordinator.cluster.controllers.main import main

if __name__ == "__main__":
    sys.exit(main())
