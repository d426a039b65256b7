package pipelines

// Images that docker and kubernetes rows run, by vendor of the libraries in
// them. They hold kbrun, python and the compilers; their tags are never moved.
// A digest would pin harder and may be given with --image; the constants
// become digests when the images are published.
const (
	CUDAImage = "ghcr.io/gpu-mode/kbgen-runner:0.1.0-cuda"
	ROCmImage = "ghcr.io/gpu-mode/kbgen-runner:0.1.0-rocm"
	TPUImage  = "ghcr.io/gpu-mode/kbgen-runner:0.1.0-tpu"
)

// An image is one that pipeline image builds, from the Dockerfile that kbgen
// image prints.
type image struct {
	kind string // of runner: cuda, rocm
	ref  string
}

// images are those that pipeline image builds. There is none for TPUs yet.
var images = []image{{"cuda", CUDAImage}, {"rocm", ROCmImage}}
