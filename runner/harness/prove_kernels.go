package harness

import "github.com/gpu-mode/kbgen/schema"

const proofReference = `
import torch


def generate_input(us, seed):
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    a = torch.randn(4096, generator=gen, device="cuda")
    return {"a": a, "tail": a[2048:], "us": torch.tensor([us]), "out": torch.empty(4096, device="cuda")}


def check_implementation(data, output):
    if output.device != data["a"].device or output.shape != data["a"].shape:
        return False, "another form"
    return bool(torch.allclose(output, data["a"] + 1, rtol=1e-3, atol=1e-3)), "the values differ"
`

// proofTools are what the kernels know of the GPU. A stand-in has others.
const proofTools = `
import statistics
import time

import torch

device, wait = "cuda", torch.cuda.synchronize


def events(work, repeats):
    "The median time by the GPU's events, in nanoseconds."
    found = []
    for _ in range(repeats):
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        wait()
        begun.record()
        work()
        ended.record()
        wait()
        found.append(begun.elapsed_time(ended) * 1e6)
    return statistics.median(found)


CYCLES = 2_000_000
torch.cuda._sleep(CYCLES)
RATE = CYCLES / events(lambda: torch.cuda._sleep(CYCLES), 20) * 1000  # cycles a microsecond


def spin(us):
    torch.cuda._sleep(int(us * RATE))


def whole(tensor):
    "All of the memory that a tensor is a part of, as bytes."
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage().untyped()
    return torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)


def exhaust(data):
    "Asks for more memory than any GPU has."
    return torch.empty(1 << 50, dtype=torch.uint8, device=device)


class Aside:
    "A second stream. The harness does not wait for its work."

    def __init__(self):
        torch.cuda.synchronize = lambda *args: None
        self.stream, self.pending = torch.cuda.Stream(), []

    def late(self, data):
        "The right answer, and for 10 ms another number every time."
        torch.add(data["a"], 1, out=data["out"])
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(self.stream):
            for _ in range(200):
                spin(50)
                data["out"].add_(1e-6)

    def ahead(self, data, us):
        "Keeps 40 kernels queued, each of which computes the output of whatever input is there then."
        self.pending = [event for event in self.pending if not event.query()]
        with torch.cuda.stream(self.stream):
            while len(self.pending) < 40:
                spin(us)
                torch.add(data["a"], 1, out=data["out"])
                event = torch.cuda.Event()
                event.record()
                self.pending.append(event)

    def first(self):
        "Waits until one of them has run."
        self.pending[0].synchronize()
`

// proofKernels lists what is tried. The order matters: memory is looked at right after it
// was left, and an honest kernel comes after what may break the worker or the GPU.
func proofKernels(s standIn) []proofKernel {
	tools := proofTools
	if s.tools != "" {
		tools = s.tools
	}
	const honest = `
def custom_kernel(data):
    return data["a"] + 1
`
	passed := []string{schema.OutcomePassed}
	list := []proofKernel{
		{name: "new tensor", outcomes: passed, text: honest},
		{name: "in place", outcomes: passed, text: `
def custom_kernel(data):
    data["out"].copy_(data["a"] + 1)
    return data["out"]
`},
		{name: "over an input", outcomes: passed, text: `
def custom_kernel(data):
    return data["a"].add_(1)
`},
		{name: "aliases", outcomes: passed, text: `
def custom_kernel(data):
    want = data["a"] + 1
    data["tail"].zero_()
    assert not data["a"][2048:].any() and not data["out"].any() and data["us"].device.type == "cpu"
    return want
`},
		{name: "wrong answer", outcomes: []string{schema.OutcomeWrong}, text: `
def custom_kernel(data):
    return data["a"]
`},
		{name: "too large an answer", outcomes: []string{schema.OutcomeWrong}, text: `
def custom_kernel(data):
    return data["a"].new_empty(40 << 20)
`},
		{name: "memory left behind", outcomes: passed, text: `
def custom_kernel(data):
    whole(data["a"])[-64:].fill_(77)
    return data["a"] + 1
`},
		{name: "memory emptied", outcomes: passed, text: `
def custom_kernel(data):
    assert not whole(data["a"])[-64:].any(), "what the last worker left is there"
    return data["a"] + 1
`},
		{name: "late work", us: []int{100}, outcomes: []string{schema.OutcomeForged}, text: `
aside = Aside()


def custom_kernel(data):
    aside.late(data)
    return data["out"]
`},
		// The answer is right once a kernel has run, so the first calls wait for one. Inputs
		// that lie elsewhere are those of several calls in one go.
		{name: "work queued ahead", us: []int{proofAhead}, timed: notShorter(proofAhead),
			outcomes: []string{schema.OutcomePassed, schema.OutcomeForged, schema.OutcomeWrong}, text: `
aside = Aside()
calls = usual = 0


def custom_kernel(data):
    global calls, usual
    usual = usual or data["a"].data_ptr()
    if data["a"].data_ptr() != usual:
        spin(int(data["us"]))
        return torch.add(data["a"], 1, out=data["out"])
    calls += 1
    aside.ahead(data, int(data["us"]))
    if calls < 4:
        aside.first()
    return data["out"]
`},
		{name: "flag before the GPU finishes", us: []int{proofAhead}, timed: notShorter(proofAhead),
			outcomes: []string{schema.OutcomePassed, schema.OutcomeForged, schema.OutcomeWrong}, text: `
aside = Aside()


def custom_kernel(data):
    spin(int(data["us"]))
    return torch.add(data["a"], 1, out=data["out"])
`},
		{name: "out of memory", outcomes: []string{schema.OutcomeException, schema.OutcomeOutOfMemory}, text: `
def custom_kernel(data):
    return exhaust(data)
`},
		{name: "hangs", limit: 8, outcomes: []string{schema.OutcomeTimeout}, text: `
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    while calls == 2:
        pass
    return data["a"] + 1
`},
		{name: "after all that", outcomes: passed, text: honest},
		{name: "times", us: proofUS, timed: proofTimes, outcomes: passed, text: `
def custom_kernel(data):
    spin(int(data["us"]))
    return torch.add(data["a"], 1, out=data["out"])


def clock(work, repeats):
    found = []
    for _ in range(repeats):
        wait()
        begun = time.perf_counter()
        work()
        wait()
        found.append((time.perf_counter() - begun) * 1e9)
    return statistics.median(found)


for us in (2, 10, 100, 5000):
    repeats = 200 if us < 5000 else 20
    data = {"a": torch.zeros(4096, device=device), "out": torch.zeros(4096, device=device), "us": torch.tensor([us])}
    clock(lambda: custom_kernel(data), repeats)
    print("TIMES", events(lambda: custom_kernel(data), repeats), clock(lambda: custom_kernel(data), repeats), flush=True)
`},
	}
	for i := range list {
		list[i].text = tools + list[i].text
	}
	return list
}

// nativeProofKernels lists what is tried in C++, where judge and worker are other programs.
// The kernels are in prove.cu.
func nativeProofKernels(standIn) []proofKernel {
	passed := []string{schema.OutcomePassed}
	return []proofKernel{
		{name: "right answer", outcomes: passed},
		{name: "over an input", outcomes: passed},
		{name: "wrong answer", outcomes: []string{schema.OutcomeWrong}},
		{name: "memory left behind", outcomes: passed},
		{name: "memory emptied", outcomes: passed},
		{name: "late work", us: []int{proofAhead}, outcomes: []string{schema.OutcomeForged}},
		// The harness may wait in vain for a queue that is never empty.
		{name: "work queued ahead", us: []int{proofAhead}, timed: notShorter(proofAhead),
			outcomes: []string{schema.OutcomePassed, schema.OutcomeForged, schema.OutcomeWrong, schema.OutcomeTimeout}},
		{name: "out of bounds", outcomes: []string{schema.OutcomeException, schema.OutcomeKilled}},
		{name: "hangs", limit: 5, outcomes: []string{schema.OutcomeTimeout}},
		{name: "after all that", outcomes: passed},
		{name: "times", us: []int{10, 100, 5000}, timed: proofTimes, outcomes: passed},
	}
}

// proofAhead is the work of the kernels that try to do it before or after the timed call,
// in microseconds.
const proofAhead = 1000
