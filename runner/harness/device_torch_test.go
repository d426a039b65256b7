package harness

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// TestDeviceOfTorch: what class Device asks of torch, with a torch that only
// looks like one of CUDA's. Whether CUDA does it, TestGPU shows.
func TestDeviceOfTorch(t *testing.T) {
	out, err := exec.Command("python3", "-I", "-c", channelPy+devicePy+`
import types

SIZE = 32 << 20
gaps = [(1000, 64 << 20), (1000, 64 << 20), (5000, 32 << 20)]  # segments that allocations fall into
TOLD = (0, b"\x00h\xff" * 22, SIZE, 0, b"/torch_1_2", 3, b"e" * 64, True)
calls = []


class Storage:
    def _share_cuda_(self):
        return TOLD

    @staticmethod
    def _new_shared_cuda(*args):
        calls.append(args)
        return "storage"


class Tensor:
    def __init__(self, number):
        self.number, self.device = number, types.SimpleNamespace(type="cuda", index=0)

    def data_ptr(self):
        return 1000 + 2000 * self.number

    def untyped_storage(self):
        return Storage()

    def set_(self, storage):
        calls.append(storage)
        return self

    def __getitem__(self, key):
        calls.append(key)
        return self


made = []


def zeros(size, dtype, device):
    made.append(Tensor(len(made)))
    return made[-1]


cuda = types.SimpleNamespace(
    init=lambda: calls.append("init"), empty_cache=lambda: None,
    memory_snapshot=lambda: [{"address": a, "total_size": s} for a, s in gaps],
)
sys.modules["torch"] = types.SimpleNamespace(
    cuda=cuda, zeros=zeros, uint8="uint8", empty=lambda *a, **k: Tensor(9), UntypedStorage=Storage,
)
device = Device()
assert calls == []
tensor = device.allocate(SIZE, [])
assert tensor is made[2] and device.kept == [tensor], "in somebody else's segment"
shared = device.share(tensor)
assert all(isinstance(text, str) and text.isprintable() for text in shared)
calls.clear()
Device().open(shared, SIZE, [])
assert calls == ["init", TOLD, "storage", slice(None, SIZE)], calls
assert [type(x) for x in calls[1]] == [type(x) for x in TOLD]
assert device.holds(tensor) and device.number(tensor) == 0
TOLD = TOLD[:3] + (512,) + TOLD[4:]
for work, words in ((lambda: device.share(tensor), "inside of a larger piece"), (lambda: device.allocate(SIZE, []), "no segment of its own")):
    try:
        work()
        raise SystemExit("nothing was raised, want " + words)
    except RuntimeError as error:
        assert words in str(error), error
print("all well")
`).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("python3 is missing")
	}
	if strings.TrimSpace(string(out)) != "all well" {
		t.Errorf("%v\n%s", err, out)
	}
}
