"""See ``main``."""

import sys

from koordinator.cluster.main import main

sys.exit(main())
