"""koord-runtime-proxy: between kubelet and the container runtime, to let hooks change what containers get."""
