//go:build !cgo

package device

// openNVML reports [ErrNoDriver]: NVML cannot be called without cgo.
func openNVML() (reader, func(), error) { return nil, nil, ErrNoDriver }
