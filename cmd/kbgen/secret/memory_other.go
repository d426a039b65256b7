//go:build !linux

package secret

import (
	"errors"

	"github.com/gpu-mode/kbgen/cmd/internal/cli"
)

// memoryDirectory makes none: nodes run Linux.
func memoryDirectory(*cli.Env) (string, error) {
	return "", errors.New("got a system whose files in memory are not known here, want Linux")
}
