package notice_test

import (
	"fmt"
	"time"

	"github.com/gpu-mode/kbgen/local/notice"
)

func ExampleSign() {
	fmt.Println(notice.Sign("token", time.Unix(1_700_000_000, 0), []byte(`{"event":"ping"}`)))
	// Output: timestamp=1700000000,signature=1a1be5aef672d36a3a63d54ed065bfee023762a2b9ab4748f82aca7f4f4a1370
}
