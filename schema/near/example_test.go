package near_test

import (
	"fmt"

	"github.com/gpu-mode/kbgen/schema/near"
)

func ExampleName() {
	fmt.Println(near.Name("H10_BK", []string{"CPU_BK", "H100_BK", "B200_BK"}))
	// Output: H100_BK
}
