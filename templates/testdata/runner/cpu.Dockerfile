# kbgen's runner image without a GPU: python3 and kbrun.
#
# The build context holds this file and kbrun, and nothing else:
#
#   docker build -t kbgen-runner:0.1.0-cpu .
#
# The base has python3. Nothing is fetched during the build.
ARG BASE=kbgen-base:bookworm
FROM ${BASE}

ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

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

LABEL org.opencontainers.image.title="kbgen runner (cpu)" \
      org.opencontainers.image.description="Judges GPU kernel submissions in a Buildkite step" \
      org.opencontainers.image.source="https://github.com/gpu-mode/kbgen" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="0.1.0"

