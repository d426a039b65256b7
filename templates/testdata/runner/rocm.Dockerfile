# kbgen's runner image for AMD GPUs: hipcc, rocprofv3, python3, torch and kbrun.
#
# The build context holds this file and kbrun, and nothing else:
#
#   docker build --build-arg BASE_DIGEST=sha256:... -t kbgen-runner:0.1.0-rocm .
#
# The tag says what the base is for people, the digest what it is. The second is
# printed by: docker buildx imagetools inspect rocm/dev-ubuntu-24.04:7.2.4-complete
ARG BASE=rocm/dev-ubuntu-24.04:7.2.4-complete
ARG BASE_DIGEST=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
FROM ${BASE}@${BASE_DIGEST}

RUN export DEBIAN_FRONTEND=noninteractive \
 && apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-dev python3-venv g++ ninja-build \
 && rm -rf /var/lib/apt/lists/* /var/log/*

RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/rocm7.2 torch==2.11.0 numpy
ENV PATH=/opt/venv/bin:/opt/rocm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    ROCM_PATH=/opt/rocm ROCM_HOME=/opt/rocm

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

LABEL org.opencontainers.image.title="kbgen runner (rocm)" \
      org.opencontainers.image.description="Judges GPU kernel submissions in a Buildkite step" \
      org.opencontainers.image.source="https://github.com/gpu-mode/kbgen" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"

