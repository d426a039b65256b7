package templates

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/gpu-mode/kbgen/schema/text"
)

// A RunnerKind names a runner image by the libraries in it.
type RunnerKind string

const (
	CUDA RunnerKind = "cuda" // nvcc, torch for CUDA
	ROCm RunnerKind = "rocm" // hipcc, torch for ROCm
	CPU  RunnerKind = "cpu"  // python only: tests, and tasks without a GPU
)

// runnerKinds lists every kind there is.
func runnerKinds() []RunnerKind { return []RunnerKind{CUDA, ROCm, CPU} }

// A Runner says what goes into a runner image: the machine in which a
// container step judges submissions. The zero fields of [NewRunner]'s value
// are filled by the caller.
//
// The image holds kbrun and no secret: payload and limits come with the job.
// It works for any user id, without capabilities, network or a writable root;
// it starts nothing by itself, since the step names the command.
type Runner struct {
	Kind RunnerKind

	// Base is the image to build on: name:tag for CUDA and ROCm. For CPU any
	// image with python3, also a local one (see [Rootfs]) or an image id.
	Base string
	// Digest pins Base, "sha256:…". CUDA and ROCm only; when it is empty the
	// build must be given BASE_DIGEST and fails without it.
	Digest string

	Torch      string // version of torch, "2.11.0"; empty for CPU
	TorchIndex string // package index with torch for this kind, an https URL

	Version  string // of kbgen, put into the image's labels
	Revision string // commit of kbgen, 40 hex digits; may be empty
}

// NewRunner returns the runner image of a kind as kbgen means it, without
// Digest, Version and Revision; for CPU without Base as well.
//
// Compute capability 10.0 (B200) needs CUDA 12.8 or newer, gfx950 (MI355X)
// needs ROCm 7.0 or newer. torch for both: pytorch.org/get-started.
func NewRunner(kind RunnerKind) (Runner, error) {
	switch kind {
	case CUDA:
		return Runner{Kind: CUDA, Base: "nvidia/cuda:13.0.2-devel-ubuntu24.04",
			Torch: "2.11.0", TorchIndex: "https://download.pytorch.org/whl/cu130"}, nil
	case ROCm:
		return Runner{Kind: ROCm, Base: "rocm/dev-ubuntu-24.04:7.2.4-complete",
			Torch: "2.11.0", TorchIndex: "https://download.pytorch.org/whl/rocm7.2"}, nil
	case CPU:
		return Runner{Kind: CPU}, nil
	}
	return Runner{}, fmt.Errorf("runner image %q: unknown kind, have %q", kind, runnerKinds())
}

var (
	baseImage    = form{text.Pattern(`^[a-z0-9][a-z0-9._/:-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?$`), "an image reference or id"}
	taggedImage  = form{text.Pattern(`^[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`), "an image with its tag"}
	imageDigest  = form{text.Pattern(`^(sha256:[0-9a-f]{64})?$`), "sha256: and 64 hex digits, or nothing"}
	torchVersion = form{text.Pattern(`^[0-9]+(\.[0-9]+){1,3}(\+[a-z0-9.]+)?$`), "a version such as 2.11.0"}
	nothing      = text.Pattern(`^$`)
	packageIndex = form{text.Pattern(`^https://[a-z0-9.-]+(/[A-Za-z0-9._-]+)*/?$`), "an https URL without user, query or port"}
	kbgenVersion = form{text.Pattern(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$`), "letters, digits, dots, +, - and _"}
	commitID     = form{text.Pattern(`^([0-9a-f]{40})?$`), "a commit of 40 hex digits, or nothing"}
)

// Validate returns every fault of the image's values, joined; each is a
// [PlaceholderError].
func (r Runner) Validate() error {
	what := "runner image " + string(r.Kind)
	if !slices.Contains(runnerKinds(), r.Kind) {
		return &PlaceholderError{what, "Kind", string(r.Kind), fmt.Sprintf("one of %q", runnerKinds())}
	}
	faults := []error{
		value{"Version", r.Version, kbgenVersion}.fault(what),
		value{"Revision", r.Revision, commitID}.fault(what),
	}
	if r.Kind == CPU {
		faults = append(faults,
			value{"Base", r.Base, baseImage}.fault(what),
			value{"Digest", r.Digest, form{nothing, "nothing: the base may be a local image, pin a published one in Base"}}.fault(what),
			value{"Torch", r.Torch, form{nothing, "nothing: the image has no torch"}}.fault(what))
		return errors.Join(faults...)
	}
	if strings.HasSuffix(r.Base, ":latest") {
		faults = append(faults, &PlaceholderError{what, "Base", r.Base, "a tag that stays, not latest"})
	}
	return errors.Join(append(faults,
		value{"Base", r.Base, taggedImage}.fault(what),
		value{"Digest", r.Digest, imageDigest}.fault(what),
		value{"Torch", r.Torch, torchVersion}.fault(what),
		value{"TorchIndex", r.TorchIndex, packageIndex}.fault(what))...)
}

// Dockerfile returns the image's Dockerfile. Its build context is a directory
// with the Dockerfile, an executable kbrun built without cgo, for CUDA also
// kbrun-nvml, the same built with cgo against the base's libc, and nothing else.
//
// Errors: those of [Runner.Validate].
func (r Runner) Dockerfile() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	t, err := template.ParseFS(files, "runner/*.Dockerfile")
	if err != nil {
		return nil, fmt.Errorf("parsing the embedded Dockerfiles: %w", err)
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, string(r.Kind)+".Dockerfile", r); err != nil {
		return nil, fmt.Errorf("filling the Dockerfile for %s: %w", r.Kind, err)
	}
	return out.Bytes(), nil
}

// Rootfs returns a shell script that makes the base of a CPU image from
// Debian's packages, for machines that reach a Debian mirror and no registry:
//
//	sh rootfs.sh OUT.tar && docker import OUT.tar kbgen-base:1
//
// It needs root and debootstrap; its other arguments are explained in it.
func Rootfs() ([]byte, error) { return files.ReadFile("runner/rootfs.sh") }
