//go:build !cgo

package device

// HasNVML reports whether NVML is inside this build.
const HasNVML = false

// openNVML reports [ErrNoDriver]: NVML cannot be called without cgo.
func openNVML() (reader, func(), error) { return nil, nil, ErrNoDriver }
