package job

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-mode/kbgen/schema"
)

var (
	gpuTypeForm = regexp.MustCompile(`^[A-Za-z0-9_]{1,60}$`)
	queueForm   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
)

// A Place is the row that a step says it serves.
type Place struct{ GPUType, Queue string }

// In returns the GPU type and the queue that the job runs for, each "" when
// nobody says, and why that is not what its build asks for; "" when it is.
//
// A step made for one build says it in the build's own variables. One that serves
// every build has names of its own for it, and the build's variables say what its
// launcher wants: a build for another type has come to the wrong queue.
func (p Place) In(env Env) (gpuType, queue, wrong string) {
	wantGPU := env.Getenv(schema.EnvGPU)
	wantQueue := cmp.Or(env.Getenv(schema.EnvQueue), env.Getenv(schema.EnvOldQueue))
	gpuType, queue = formed(cmp.Or(p.GPUType, wantGPU), gpuTypeForm), formed(cmp.Or(p.Queue, wantQueue), queueForm)
	switch {
	case p.GPUType != "" && wantGPU != "" && !among(wantGPU, p.GPUType):
		wrong = fmt.Sprintf("the build asks for GPU type %.60q, and its step serves %.60q", wantGPU, p.GPUType)
	case p.Queue != "" && wantQueue != "" && wantQueue != p.Queue:
		wrong = fmt.Sprintf("the build asks for queue %.80q, and its step serves %.80q", wantQueue, p.Queue)
	}
	return gpuType, queue, wrong
}

// formed is a value that has the form, else "": a list of types is no type.
func formed(value string, form *regexp.Regexp) string {
	if !form.MatchString(value) {
		return ""
	}
	return value
}

// among reports whether a list with commas names the type. Types are found
// without case.
func among(list, name string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(one string) bool { return strings.EqualFold(strings.TrimSpace(one), name) })
}
