# kbgen's runner image for NVIDIA GPUs: nvcc, ncu, python3, torch and kbrun.
#
# The build context holds this file, kbrun and kbrun-nvml (kbrun built with
# cgo, which asks NVIDIA's driver), and nothing else:
#
#   docker build --build-arg BASE_DIGEST=sha256:... -t kbgen-runner:{{.Version}}-cuda .
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

# torch of this CUDA, with its own CUDA libraries; nvcc is the base's.
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --index-url {{.TorchIndex}} torch=={{.Torch}} numpy
ENV PATH=/opt/venv/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    CUDA_HOME=/usr/local/cuda

# The base says "all", which gives every GPU to a container that was started
# without naming one where nvidia is the default runtime. docker run --gpus and
# CDI put their own value behind this one, and the last one counts.
ENV NVIDIA_VISIBLE_DEVICES=void \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

{{template "judge.Dockerfile" .}}
