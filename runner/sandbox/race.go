//go:build race

package sandbox

// detectorEnviron is for first processes that are built with the race detector,
// as tests are: it lets every process wait for a second when it ends.
var detectorEnviron = []string{"GORACE=atexit_sleep_ms=0"}
