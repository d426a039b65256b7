// Package legacy reads the encrypted variables that pipelines already carry,
// and writes the one form that is still written: three formats of two tools,
// JuliaGPU/buildkite and JuliaCI/cryptic-buildkite-plugin.
//
// All of them encrypt without authenticating: who can change a ciphertext can
// change the value, and nothing ties a value to its name or its pipeline. They
// are read so that they can be replaced ([secrets.Seal]); they are never trusted.
//
// The package knows no files, no environment and no agent.
//
// [secrets.Seal]: https://pkg.go.dev/github.com/gpu-mode/kbgen/secrets#Seal
package legacy
