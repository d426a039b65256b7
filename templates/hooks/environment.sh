#!/bin/bash
# Exports SECRET_NAME, encrypted in one of the old formats, as NAME: to jobs of
# the pipelines named here and to no others. Made by: kbgen secret hook
#
# The key is the broker's; this hook runs as the job's user and never has it.
# What a secret's name and value may be, the broker and kbgen decide.
kbgen_old_names() { # of variables with a text in an old format
	local variable
	for variable in $(compgen -e); do
		[[ $variable =~ ^(SECRET|CRYPTIC_ADHOC_SECRET)_[A-Z][A-Z0-9_]*$ && ${!variable} =~ ^[A-Za-z0-9+/]{86,}=*(\;[A-Za-z0-9+/]+=*)?$ ]] && echo "$variable"
	done
}
kbgen_old_secrets() {
	local variable value repository= names
	names=$(kbgen_old_names)
	[[ -n $names ]] || return 0
	case ${BUILDKITE_PIPELINE_ID-} in
@ALLOW@	esac
	if [[ -z $repository || ${BUILDKITE_REPO-} != "$repository" ]]; then
		echo '--- kbgen: no secrets: this pipeline or its repository is not allowed to have any here'
	elif [[ ${BUILDKITE_PULL_REQUEST-} != false ]]; then
		echo '--- kbgen: no secrets: this builds a pull request'
	elif [[ -n ${@UNTRUSTED@-} || ${BUILDKITE_COMMAND-} == *kbrun* ]]; then
		echo '--- kbgen: no secrets: this step runs what nobody trusts'
	else
		for variable in $names; do
			[[ $variable == SECRET_* ]] || continue
			# It is out of the log before it is here. One end of line is lost, as it
			# was with the old hook.
			value=$(kbgen secret get "${variable#SECRET_}" --old @FLAGS@) || return 1
			export "${variable#SECRET_}=$value" KBGEN_OLD_SECRETS=true
		done
	fi
	for variable in $names; do # nobody needs the ciphertext. What a hook unsets, the agent gives to the command all the same
		export "$variable="
	done
}
kbgen_old_secrets || {
	echo '+++ kbgen: a secret of this job could not be opened: see the line above'
	exit 1
}
unset -f kbgen_old_secrets kbgen_old_names
