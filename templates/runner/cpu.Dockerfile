# kbgen's runner image without a GPU: python3 and kbrun.
#
# The build context holds this file and kbrun, and nothing else:
#
#   docker build -t kbgen-runner:{{.Version}}-cpu .
#
# The base has python3. Nothing is fetched during the build.
ARG BASE={{.Base}}
FROM ${BASE}

ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

{{template "judge.Dockerfile" .}}
