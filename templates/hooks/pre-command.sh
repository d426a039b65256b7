#!/bin/bash
# Takes the agent's job API away from steps that run what nobody trusts, and from
# steps that were given secrets: it tells whoever asks the whole environment, and
# lets them set BASH_ENV for the hooks to come. Made by: kbgen secret hook
if [[ -n ${@UNTRUSTED@-}${KBGEN_OLD_SECRETS-} || ${BUILDKITE_COMMAND-} == *kbrun* ]]; then
	unset BUILDKITE_AGENT_JOB_API_SOCKET BUILDKITE_AGENT_JOB_API_TOKEN
fi
