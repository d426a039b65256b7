package glob_test

import (
	"fmt"

	"github.com/gpu-mode/kbgen/schema/glob"
)

func ExampleMatch() {
	fmt.Println(glob.Match("release/*", "release/v1/rc"))
	fmt.Println(glob.Match("release/*", "main"))
	// Output:
	// true
	// false
}
