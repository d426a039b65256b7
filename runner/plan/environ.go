package plan

import (
	"slices"
	"strings"
)

// passed lists the variables that a submission may see, and passedPrefixes the
// families. HOME, TMPDIR, USER, LOGNAME and POPCORN_* are set anew for every
// process.
var passed = []string{
	"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM",
	"LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CUTLASS_PATH",
	"CC", "CXX", "MAX_JOBS", "OMP_NUM_THREADS",
	"NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
	"ROCM_PATH", "ROCM_HOME", "ROCM_VERSION", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL",
}

var passedPrefixes = []string{
	"CUDA_", "NCCL_", "CUBLAS_", "CUDNN_",
	"HIP_", "HSA_", "RCCL_", "MIOPEN_", "ROCBLAS_", "HIPBLASLT_", "AITER_",
	"TORCH_", "PYTORCH_", "TRITON_",
	"TPU_", "LIBTPU_", "JAX_", "XLA_",
}

// secretWords keep a variable out even when its family is let through.
var secretWords = []string{"TOKEN", "SECRET", "PASSWORD", "KEY", "CREDENTIAL"}

// Environ returns the part of a machine's environment that a submission may
// see: an allow-list, so that payloads, tokens and the names of a CI system
// stay out whatever they are called.
func Environ(machine []string) []string {
	return slices.DeleteFunc(slices.Clone(machine), func(pair string) bool {
		name, _, ok := strings.Cut(pair, "=")
		return !ok || !allowed(name)
	})
}

func allowed(name string) bool {
	if slices.Contains(passed, name) {
		return true
	}
	has := func(part string) bool { return strings.Contains(name, part) }
	prefix := func(p string) bool { return strings.HasPrefix(name, p) }
	return slices.ContainsFunc(passedPrefixes, prefix) && !slices.ContainsFunc(secretWords, has)
}
