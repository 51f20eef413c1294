"""koord-runtime-proxy: a proxy between the kubelet and the container runtime, in which hooks change containers."""
