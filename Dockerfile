# The harness with a compiler and everything else that it needs. harness/guides/container.md has the flags of docker run.
#
#     docker build -t kernel-harness .
#     docker build -t kernel-harness:cuda --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 .
#
# The first image runs solutions on the CPU. PIP_EXTRA_INDEX_URL may hold the address of PyTorch's index of CPU wheels,
# which are a tenth as large as those with CUDA.
ARG BASE=debian:12-slim
FROM ${BASE}

# The release of the base decides the versions.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ git python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
COPY constraints.txt /opt/source/
RUN python3 -m venv /opt/harness \
    && /opt/harness/bin/pip install --no-cache-dir -c /opt/source/constraints.txt torch

# The user may be any (docker run --user), so these folders are everybody's. Without a name for the user's id, libraries
# read USER and HOME. The cache holds what the first evaluation on a CPU would otherwise compile for a minute or two.
ENV PATH=/opt/harness/bin:$PATH HARNESS_CACHE=/cache HOME=/home/harness USER=harness
COPY . /opt/source/
RUN pip install --no-cache-dir -c /opt/source/constraints.txt /opt/source \
    && mkdir -m 1777 /cache /work /home/harness \
    && harness warmup --device host \
    && chmod -R a+rwX /cache \
    && cp /opt/source/seccomp.json /opt/harness/
VOLUME /cache
WORKDIR /work
USER 1000:1000
ENTRYPOINT ["harness"]
CMD ["doctor"]
