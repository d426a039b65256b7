package harness

import (
	"github.com/gpu-mode/kbgen/schema"
)

// Kernels with what becomes of them.
var onDevice = []struct{ name, outcome, words, text string }{
	{"new tensor", schema.OutcomePassed, "", `
def custom_kernel(data):
    return data["a"] * 2 + data["index"]
`},
	{"in place", schema.OutcomePassed, "", `
def custom_kernel(data):
    data["out"][...] = data["a"] * 2 + data["index"]
    return data["out"]
`},
	{"over an input", schema.OutcomePassed, "", `
def custom_kernel(data):
    return data["a"].mul_(2).add_(data["index"])
`},
	{"mixed outputs", schema.OutcomePassed, "", `
def custom_kernel(data):
    return data["a"] * 2 + data["index"], data["index"].flip(0)
`},
	{"mixed outputs, the integers wrong", schema.OutcomeWrong, "the integers differ", `
def custom_kernel(data):
    return data["a"] * 2 + data["index"], data["index"]
`},
	{"what is shared stays shared", schema.OutcomePassed, "", `
def custom_kernel(data):
    a, tail = data["a"], data["tail"]
    assert type(a) is type(data["index"]) and not data["out"].any() and data["none"].shape == (0,)
    before = a.clone()
    tail += 1
    assert (a[a.numel() // 2 :] - before[a.numel() // 2 :] - 1).abs().max() < 1e-5
    return before * 2 + data["index"]
`},
	{"wrong", schema.OutcomeWrong, "the values differ", `
def custom_kernel(data):
    return data["a"] * 2
`},
	{"another type", schema.OutcomeWrong, "another form", `
def custom_kernel(data):
    return (data["a"] * 2 + data["index"]).double()
`},
	{"no tensor", schema.OutcomeWrong, "custom_kernel returned value: object", `
def custom_kernel(data):
    return object()
`},
	{"too much", schema.OutcomeWrong, "an output of more than 64 MiB", `
def custom_kernel(data):
    return data["a"][:1].expand(1 << 40)
`},
	{"too much at once", schema.OutcomeWrong, "at most 67108864 are allowed", `
def custom_kernel(data):
    return data["a"].new_empty(40 << 20)
`},
	{"raises", schema.OutcomeException, "ValueError: no", `
def custom_kernel(data):
    raise ValueError("no")
`},
	// Right before and after, and other numbers every time: only what was read at
	// the flag tells, if the thread had a core meanwhile. See TestDeviceLate, too.
	{"late", schema.OutcomeForged, "places changed", `
import threading

import torch


class flips:
    lock, buffer = threading.Lock(), None


def custom_kernel(data):
    out = data["out"]
    with flips.lock:
        torch.add(data["a"] * 2, data["index"], out=out)
        flips.buffer, flips.right = out, out.clone()
    return out


def flip():
    while True:
        with flips.lock:
            if flips.buffer is not None:
                flips.buffer.copy_(flips.right + torch.rand(len(flips.right)) * 5e-4)


threading.Thread(target=flip, daemon=True).start()
`},
	{"leaves at the second call", schema.OutcomeExited, "ended its own process", `
import os

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls == 2:
        os._exit(5)
    return data["a"] * 2 + data["index"]
`},
	{"after all that", schema.OutcomePassed, "", `
def custom_kernel(data):
    return data["a"] * 2 + data["index"]
`},
}
