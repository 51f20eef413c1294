# The images of the programs, one each, and `koordinator` with all of them and the command koord. docs/container-images.md
# says what is in them, how large they are, and how to build them: `make images` with whatever builds images here, or
#
#   docker build --target koordlet --tag koordlet:0.2.0 .
#
# Everything is assembled in one stage. What is published has no more than what the program loads: neither a shell nor a
# package manager. Probes are those of Kubernetes; a HEALTHCHECK would be ignored there.
ARG BASE=docker.io/library/python:3.13-slim-bookworm@sha256:67a1e1f215ccda113cfc024e8639049257e88f273898f595b61476d128d387e8

FROM ${BASE} AS build
# strip, which takes nine tenths off some of the packages' libraries.
RUN apt-get update -qq && apt-get install -qq --yes --no-install-recommends binutils > /dev/null
WORKDIR /source
# The locked, hashed tools and dependencies first: they change more seldom than the sources.
COPY requirements requirements
RUN python -m venv --without-pip /opt/tools \
 && pip --python /opt/tools install --quiet --no-cache-dir --require-hashes --only-binary=:all: -r requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY images images
# Seconds since 1970: the time of every file, so that the same sources make the same images.
ARG SOURCE_DATE_EPOCH=0
RUN pip --python /opt/tools wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels . \
 && SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} /opt/tools/bin/python -m images.assemble /wheels/*.whl \
 && rm -rf /root/.cache

FROM scratch AS system
COPY --from=build /images/system /
ENV PATH=/opt/koordinator/bin:/usr/local/bin:/usr/bin \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
ARG VERSION=unknown
ARG REVISION=unknown
ARG SOURCE=https://koordinator.sh
LABEL org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION} \
      org.opencontainers.image.source=${SOURCE} \
      org.opencontainers.image.url=https://koordinator.sh \
      org.opencontainers.image.licenses=Apache-2.0

# A number, so that Kubernetes can tell that it is not root.
FROM system AS koord-scheduler
COPY --from=build /images/scheduler /
COPY --from=build /images/koord-scheduler /
LABEL org.opencontainers.image.title=koord-scheduler
USER 65532:65532
ENTRYPOINT ["/koord-scheduler"]

FROM system AS koord-descheduler
COPY --from=build /images/scheduler /
COPY --from=build /images/koord-descheduler /
LABEL org.opencontainers.image.title=koord-descheduler
USER 65532:65532
ENTRYPOINT ["/koord-descheduler"]

FROM system AS koord-manager
COPY --from=build /images/manager /
COPY --from=build /images/koord-manager /
LABEL org.opencontainers.image.title=koord-manager
USER 65532:65532
ENTRYPOINT ["/koord-manager"]

# Root: it writes the cgroups, sysctls and resctrl groups of the node, and opens perf events.
FROM system AS koordlet
COPY --from=build /images/node /
COPY --from=build /images/koordlet /
LABEL org.opencontainers.image.title=koordlet
USER 0:0
ENTRYPOINT ["/koordlet"]

# Root: it runs the tools of vendors in the node's root folder, and they open the node's devices.
FROM system AS koord-device-daemon
COPY --from=build /images/node /
COPY --from=build /images/koord-device-daemon /
LABEL org.opencontainers.image.title=koord-device-daemon
USER 0:0
ENTRYPOINT ["/koord-device-daemon"]

# Root: the socket of the container runtime is root's, and kubelet finds that of the proxy in /var/run.
FROM system AS koord-runtime-proxy
COPY --from=build /images/node /
COPY --from=build /images/koord-runtime-proxy /
LABEL org.opencontainers.image.title=koord-runtime-proxy
USER 0:0
ENTRYPOINT ["/koord-runtime-proxy"]

# All programs and koord. The last one is what is built where no target is named.
FROM system AS koordinator
COPY --from=build /images/runtime /
COPY --from=build /images/koordinator /
LABEL org.opencontainers.image.title=koordinator
USER 65532:65532
CMD ["koord", "--help"]
