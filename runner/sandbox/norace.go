//go:build !race

package sandbox

// detectorEnviron: see race.go.
var detectorEnviron []string
