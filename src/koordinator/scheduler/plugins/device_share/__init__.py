"""DeviceShare: GPUs, RDMA cards and FPGAs, by number and by shares."""
