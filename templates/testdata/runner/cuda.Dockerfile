# kbgen's runner image for NVIDIA GPUs: nvcc, ncu, python3, torch and kbrun.
#
# The build context holds this file, kbrun and kbrun-nvml (kbrun built with
# cgo, which asks NVIDIA's driver), and nothing else:
#
#   docker build --build-arg BASE_DIGEST=sha256:... -t kbgen-runner:0.1.0-cuda .
#
# The tag says what the base is for people, the digest what it is. The second is
# printed by: docker buildx imagetools inspect nvidia/cuda:13.0.2-devel-ubuntu24.04
ARG BASE=nvidia/cuda:13.0.2-devel-ubuntu24.04
ARG BASE_DIGEST
FROM ${BASE}@${BASE_DIGEST}

RUN export DEBIAN_FRONTEND=noninteractive \
 && apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-dev python3-venv g++ ninja-build \
 && rm -rf /var/lib/apt/lists/* /var/log/*

# torch of this CUDA, with its own CUDA libraries; nvcc is the base's.
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cu130 torch==2.11.0 numpy
ENV PATH=/opt/venv/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    CUDA_HOME=/usr/local/cuda

# The base says "all", which gives every GPU to a container that was started
# without naming one where nvidia is the default runtime. docker run --gpus and
# CDI put their own value behind this one, and the last one counts.
ENV NVIDIA_VISIBLE_DEVICES=void \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

# Programs that would change the user are of no use to a submission without new
# privileges; without their bits they are of none anywhere.
RUN find / -xdev -type f -perm /6000 -exec chmod a-s {} +

COPY kbrun kbrun-nvml* /usr/local/bin/
RUN chmod 0755 /usr/local/bin/kbrun* && kbrun --version && python3 --version

# The step runs as the agent's user, whose id no file here knows: what asks for
# its name or home must not fail. The step mounts a writable /workdir and /tmp.
ENV HOME=/tmp USER=kernelbot LOGNAME=kernelbot LANG=C.UTF-8
WORKDIR /workdir
USER 65534:65534

# Whatever the base starts is not for us: the step names its command.
ENTRYPOINT []
CMD ["kbrun", "--help"]

LABEL org.opencontainers.image.title="kbgen runner (cuda)" \
      org.opencontainers.image.description="Judges GPU kernel submissions in a Buildkite step" \
      org.opencontainers.image.source="https://github.com/gpu-mode/kbgen" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="0.1.0"

