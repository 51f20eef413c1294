"""koord-scheduler: places pods by requests, constraints and measured load."""

import os

# Loading numpy starts threads for linear algebra, one for each core, which spin at first. There is no linear algebra
# here, and without them a start of the scheduler takes a tenth of a second of processor time less.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
