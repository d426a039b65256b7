package generator

import (
	"fmt"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/pipelines"
)

// BenchmarkRender renders and checks as many steps as its name says.
func BenchmarkRender(b *testing.B) {
	for _, n := range []int{1, 100, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			request := pipelines.Request{GPUs: many(n)}
			for b.Loop() {
				if _, err := evaluate(request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPlainMarshal is the floor: yaml.v3 writing the same document from a
// tree, without definitions and without a check.
func BenchmarkPlainMarshal(b *testing.B) {
	for _, n := range []int{1, 100, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			out, err := evaluate(pipelines.Request{GPUs: many(n)})
			if err != nil {
				b.Fatal(err)
			}
			var tree any
			if err := yaml.Unmarshal(out, &tree); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if _, err := yaml.Marshal(tree); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
