package pipelines

// Images that docker rows run, by vendor of the libraries in them. They hold
// kbrun, python and the compilers; their tags are never moved. A digest would
// pin harder and may be given with --image; the constants become digests when
// the images are published.
const (
	CUDAImage = "ghcr.io/gpu-mode/kbgen-runner:0.1.0-cuda"
	ROCmImage = "ghcr.io/gpu-mode/kbgen-runner:0.1.0-rocm"
)
