# kbgen's runner image for AMD GPUs: hipcc, rocprofv3, python3, torch and kbrun.
#
# The build context holds this file and kbrun, and nothing else:
#
#   docker build --build-arg BASE_DIGEST=sha256:... -t kbgen-runner:{{.Version}}-rocm .
#
# The tag says what the base is for people, the digest what it is. The second is
# printed by: docker buildx imagetools inspect {{.Base}}
ARG BASE={{.Base}}
ARG BASE_DIGEST{{with .Digest}}={{.}}{{end}}
FROM ${BASE}@${BASE_DIGEST}

RUN export DEBIAN_FRONTEND=noninteractive \
 && apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-dev python3-venv g++ ninja-build \
 && rm -rf /var/lib/apt/lists/* /var/log/*

RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --index-url {{.TorchIndex}} torch=={{.Torch}} numpy
ENV PATH=/opt/venv/bin:/opt/rocm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    ROCM_PATH=/opt/rocm ROCM_HOME=/opt/rocm

{{template "judge.Dockerfile" .}}
