# The image of the workloads in config/deployments and config/daemon-sets: all programs and koord, one image for all.
#
#   docker build --tag koordinator:0.1.0 .
#   docker tag koordinator:0.1.0 REGISTRY/koordinator:0.1.0 && docker push REGISTRY/koordinator:0.1.0
#   koord manifests --image=REGISTRY/koordinator:0.1.0 | kubectl apply -f -
#
# For koordlet and koord-device-daemon alone, without numpy and other packages that only the other programs need:
#
#   docker build --build-arg REQUIREMENTS=node --tag REGISTRY/koordinator-node:0.1.0 .
#
# REQUIREMENTS=nvidia is the same with NVIDIA's bindings, for nodes with GPUs; network, with pyroute2, for network QoS.
#
# tests/real/test_image.py, a part of `make test-real-long`, builds both images, runs their programs, and lets
# `koord manifests` and the Helm chart roll the first one out to a node with containerd and kubelet. Where it builds, there
# is no registry: Debian 12 with its Python 3.11 stands for the official image of Python there.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
# Which file of requirements/ is installed: runtime has what all programs need, the others what those of a node need.
ARG REQUIREMENTS=runtime
WORKDIR /source
# The locked, hashed dependencies first: they change more seldom than the sources.
COPY requirements/runtime.txt requirements/node.txt requirements/nvidia.txt requirements/network.txt requirements/
RUN python -m venv --without-pip /opt/koordinator \
 && pip --python /opt/koordinator install --no-cache-dir --no-compile --require-hashes --only-binary=:all: -r requirements/${REQUIREMENTS}.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
 && pip --python /opt/koordinator install --no-cache-dir --no-deps --no-index /wheels/*.whl \
 && python -m compileall -q /opt/koordinator

# The same base, since the environment refers to its interpreter. Nothing is built here.
FROM python:${PYTHON}-slim
COPY --from=build /opt/koordinator /opt/koordinator
# The original's manifests start /koord-scheduler and so on.
RUN cd /opt/koordinator/bin && for program in koord-scheduler koord-manager koord-descheduler koordlet koord-device-daemon; \
 do ln -s "$PWD/$program" /; done
ENV PATH=/opt/koordinator/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Without a name, so that Kubernetes can tell that it is not root; koordlet and koord-device-daemon are root by their pods.
USER 65532:65532
CMD ["koord", "--help"]
