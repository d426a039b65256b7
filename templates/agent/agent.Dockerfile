# An agent's image: any base with a shell, setpriv and what the jobs need, and
# buildkite-agent.
#
# The build context holds this file and buildkite-agent (3.133 or newer), and
# nothing else: no token, no key, no hooks.
#
#   docker build --build-arg BASE=nvidia/cuda:... -t kbgen-agent:cuda .
#
# Nothing is fetched during the build. Steps that check out a repository need
# git in the base, steps of kbgen's need kbrun.
ARG BASE
FROM ${BASE}

# The agent is root without root's capabilities; its jobs are a user that no file
# here knows. The compose file says both.
USER 0:0
COPY buildkite-agent /usr/local/bin/buildkite-agent
RUN chmod 0755 /usr/local/bin/buildkite-agent && buildkite-agent --version && /usr/bin/setpriv --version

ENTRYPOINT []
CMD ["buildkite-agent", "--version"]
