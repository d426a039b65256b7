package secrets

import (
	"fmt"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

// denied are names, and beginnings of names before *, that change what programs
// of a job do rather than tell them a secret.
var denied = []string{
	"PATH", "HOME", "SHELL", "IFS", "ENV", "BASH_ENV", "BASHOPTS", "SHELLOPTS", "CDPATH", "PS4", "PROMPT_COMMAND", "NODE_OPTIONS", "PERL5OPT", "RUBYOPT",
	"LD_*", "DYLD_*", "GIT_*", "SSH_*", "DOCKER_*", "PYTHON*", "BUILDKITE*", "BK_*", "KBGEN*", "KERNELBOT*",
	"NVIDIA_*", "CUDA_*", "HIP_*", "ROCR_*", "HSA_*",
}

var namePattern = text.Pattern(`^[A-Z][A-Z0-9_]{0,254}$`)

// CheckName reports why a secret cannot have this name, nil when it can.
func CheckName(name string) error {
	if !namePattern().MatchString(name) {
		return fmt.Errorf("name: got %s, want capital letters, digits and _, a letter first, at most 255", text.Quote(name))
	}
	for _, d := range denied {
		if beginning, any := strings.CutSuffix(d, "*"); name == d || any && strings.HasPrefix(name, beginning) {
			return fmt.Errorf("name: got %s, want none of %s: it changes what a job's programs do", name, d)
		}
	}
	return nil
}

// Suffix is what a variable is called beyond the secret's name when a pipeline
// carries its envelope: CODECOV_TOKEN_KBSEC. It keeps the name clear of
// [schema.RedactedName], which agents from version 4 on refuse to upload.
const Suffix = "_KBSEC"
