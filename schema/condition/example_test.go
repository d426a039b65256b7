package condition_test

import (
	"fmt"

	"github.com/gpu-mode/kbgen/schema/condition"
)

func ExampleEval() {
	vars := condition.Vars{
		Values: map[string]any{"build.branch": "main", "build.message": "tune [skip bench]"},
		Env:    map[string]string{"KERNELBOT_GPU": "B200_BK"},
	}
	fmt.Println(condition.Eval(`build.branch == "main" && build.message !~ /\[skip/`, vars))
	fmt.Println(condition.Eval(`build.env("KERNELBOT_GPU") == "B200_BK"`, vars))
	_, err := condition.Eval(`build.brnch == "main"`, vars)
	fmt.Println(err)
	// Output:
	// false <nil>
	// true <nil>
	// column 1: there is no variable build.brnch, did you mean build.branch?
}
