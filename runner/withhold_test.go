package runner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/schema"
)

func TestWithholdNames(t *testing.T) {
	r := &schema.Result{}
	withholdNames(r) // without devices
	r.Device = &schema.DeviceReport{
		Devices: []schema.Device{{
			ProcessBefore: []schema.Holder{{PID: 1, Name: "Xorg"}},
			ProcessAfter:  []schema.Holder{{PID: 7, Name: "p777190482231"}, {PID: 8}},
		}},
		Sampling: []schema.Sampling{{Seen: []schema.Holder{{PID: 7, Name: "q777190482231"}}}},
	}
	r.Ambiguous = []string{"device 0 was also used by process 7 p777190482231", "the clock went down"}
	withholdNames(r)
	all := fmt.Sprintf("%+v %+v %q", r.Device.Devices, r.Device.Sampling, r.Ambiguous)
	if strings.Contains(all, "777190482231") || !strings.Contains(all, "Xorg") || !strings.Contains(all, "by process 7 withheld") || !strings.Contains(all, "{PID:8 Name: ") {
		t.Error(all)
	}
}

// In a whole run with a secret seed, nothing of what the harness or the
// submission says is in the result: whatever it prints, raises or reports.
func TestSecretSeedIsNotTold(t *testing.T) {
	for name, body := range map[string]string{
		"prints and raises": "seed = os.environ['POPCORN_SEED'] * 5\nprint(seed); print(seed, file=sys.stderr)\nraise ValueError(seed)",
		"crashes":           "raise KeyError(os.environ['POPCORN_SEED'] * 5)",
		"writes keys":       "print(os.environ['POPCORN_SEED'] * 5 + ': 1', file=report)\nreturn False",
		"builds":            "return False",
	} {
		p := with(secret(pythonPayload(body)), "\nif __name__ == '__main__':\n    print('-DTORCH_EXTENSION_NAME=k', '77' * 5)\n")
		r := evaluatePayload(t, p)
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), "7777777777") || !strings.Contains(string(data), schema.WithheldText) {
			t.Errorf("%s: %s", name, data)
		}
	}
}
