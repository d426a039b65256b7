package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema/validation"
)

// steps returns a document of n steps as kbgen writes them.
func steps(n int) []byte {
	var b strings.Builder
	b.WriteString("steps:\n")
	for i := range n {
		fmt.Fprintf(&b, evaluation, i, i)
	}
	return []byte(b.String())
}

const evaluation = `  - key: evaluate-%d
    label: Evaluate on GPU %d
    command: kbrun evaluate
    agents:
      queue: h100
    env:
      KERNELBOT_GPU: H100_BK
      KERNELBOT_QUEUE: h100
      KERNELBOT_DEADLINE: "840"
    timeout_in_minutes: 15
    artifact_paths:
      - result.json
    retry:
      automatic:
        - exit_status: -1
          signal_reason: none
          limit: 1
        - signal_reason: agent_stop
          limit: 1
        - exit_status: 75
          limit: 2
    plugins:
      - docker#v5.13.0:
          image: ghcr.io/gpu-mode/kbgen-runner:0.1.0-cuda
          skip-checkout: true
          mount-buildkite-agent: false
          propagate-uid-gid: true
          tty: false
          network: none
          shm-size: 8g
          environment:
            - KERNELBOT_RUN_ID
            - KERNELBOT_GPU
            - KERNELBOT_QUEUE
            - KERNELBOT_MODE
            - KERNELBOT_DEADLINE
            - KERNELBOT_PAYLOAD
            - SUBMISSION_PAYLOAD
          ulimits:
            - memlock=-1
            - core=0
          drop-caps:
            - ALL
          security-opts:
            - no-new-privileges
          tmpfs:
            - /tmp:exec,size=8g,mode=1777
`

func BenchmarkValidate(b *testing.B) {
	for _, n := range []int{1, 100, 500} {
		doc := steps(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if err := validate(doc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The first document costs compiling the definitions it needs.
func BenchmarkValidateCold(b *testing.B) {
	doc := steps(1)
	for b.Loop() {
		compiled = validation.New(format)
		if err := validate(doc); err != nil {
			b.Fatal(err)
		}
	}
}
