"""koord-scheduler: places pods by requests, constraints and measured load."""

import os

# Loading numpy starts a thread for each core that waits, spinning at first, for linear algebra. There is none here, and
# a start of the scheduler takes a tenth of a second of processor time less without them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
