package harness

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-mode/kbgen/internal/testenv"
)

// pack writes little-endian values and raw bytes one after the other.
func pack(parts ...any) []byte {
	var b bytes.Buffer
	for _, part := range parts {
		switch v := part.(type) {
		case int:
			b.WriteByte(byte(v))
		case []byte:
			b.Write(v)
		case string:
			b.WriteString(v)
		default:
			if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
				panic(err)
			}
		}
	}
	return b.Bytes()
}

// stored is one storage; arrayOf a node with one array of it.
func stored(arena int, start, bytes uint64) []byte { return pack(arena, start, bytes) }

func arrayOf(kind, code, flags, device int, at uint16, offset int64, pairs ...int64) []byte {
	return pack(kindArray, kind, code, flags, device, len(pairs)/2, at, offset, pairs)
}

func message(storages [][]byte, tree []byte) []byte {
	return pack(uint16(len(storages)), bytes.Join(storages, nil), tree)
}

var testBounds = bounds{sizes: [2]uint64{4096, 8192}, logical: 1 << 20}

func TestDecodeTree(t *testing.T) {
	one := [][]byte{stored(1, 256, 16)}
	list := func(n uint32, items ...[]byte) []byte { return pack(kindList, n, bytes.Join(items, nil)) }
	deep := func(n int) []byte {
		return append(bytes.Repeat(pack(kindTuple, uint32(1)), n), kindNone)
	}
	const float32Code, float64Code, tensor = 8, 9, 1
	for _, tt := range []struct {
		name string
		raw  []byte
		want string // "" when it is good
	}{
		{"empty tuple", emptyTree(), ""},
		{"scalars", message(nil, list(6, pack(0), pack(1), pack(2), pack(3, 1, 5), pack(4, 1.5), pack(5, uint32(2), "hi"))), ""},
		{"dict", message(nil, pack(kindDict, uint32(1), 5, uint32(1), "k", 0)), ""},
		{"array.array", message(one, arrayOf(0, 8, 0, 0, 0, 0, 4, 1)), ""},
		{"tensor", message(one, arrayOf(tensor, float32Code, 1, 0, 0, 0, 2, 2, 2, 1)), ""},
		{"tensor without dimensions", message(one, arrayOf(tensor, float64Code, 0, 0, 0, 1)), ""},
		{"expanded tensor", message(one, arrayOf(tensor, float32Code, 0, 0, 0, 0, 1000, 0)), ""},
		{"empty tensor beyond its memory", message([][]byte{stored(0, 0, 0)}, arrayOf(tensor, float32Code, 0, 0, 0, 9, 0, 1, 5, 7)), ""},
		{"twice the same", message(one, list(2, arrayOf(tensor, float32Code, 0, 0, 0, 0, 4, 1), pack(kindAgain, uint16(0)))), ""},
		{"deepest", message(nil, deep(maxDepth)), ""},

		{"nothing", nil, "cut short"},
		{"a storage cut short", pack(uint16(1), 0), "cut short"},
		{"no tree", pack(uint16(0)), "cut short"},
		{"too long", make([]byte, maxMessage+1), fmt.Sprintf("at most %d are allowed", maxMessage)},
		{"bytes too many", append(emptyTree(), 0), "1 bytes too many"},
		{"too many storages", pack(uint16(maxStorages + 1)), "arrays, at most"},
		{"a third arena", message([][]byte{stored(2, 0, 0)}, pack(0)), "outside of the memory"},
		{"a storage beyond", message([][]byte{stored(0, 4096, 1)}, pack(0)), "outside of the memory"},
		{"a storage that wraps", message([][]byte{stored(0, 16, math.MaxUint64)}, pack(0)), "outside of the memory"},
		{"a start that wraps", message([][]byte{stored(1, math.MaxUint64, 1)}, pack(0)), "outside of the memory"},
		{"the same memory twice", message(slices.Repeat([][]byte{stored(1, 0, 8192)}, 2), pack(0)), "overlaps in part"},
		{"overlap", message([][]byte{stored(1, 0, 4096), stored(1, 4095, 8)}, pack(0)), "overlaps in part"},
		{"memory of no array", message([][]byte{stored(1, 0, 4096)}, pack(0)), "no array uses"},
		{"a key twice", message(nil, pack(kindDict, uint32(2), 5, uint32(1), "k", 0, 5, uint32(1), "k", 0)), "a key twice"},
		{"a number twice", message(nil, pack(kindDict, uint32(2), kindInt, 1, 5, 0, kindInt, 2, 5, 0, 0)), "a key twice"},
		{"a number as another type", message(nil, pack(kindDict, uint32(2), kindFloat, -1.0, 0, kindInt, 1, 255, 0)), "a key twice"},
		{"a number as a truth", message(nil, pack(kindDict, uint32(2), kindInt, 1, 1, 0, kindTrue, 0)), "a key twice"},
		{"a key that is no UTF-8", message(nil, pack(kindDict, uint32(1), kindText, uint32(1), 0xff, 0)), "no plain value"},
		{"keys of several types", message(nil, pack(kindDict, uint32(4), kindInt, 1, 1, 0, kindInt, 1, 255, 0, kindFloat, 1.5, 0, kindNone, 0)), ""},
		{"unknown kind", message(nil, pack(11)), "unknown kind 11"},
		{"too deep", message(nil, deep(maxDepth+1)), "levels"},
		{"too many values", message(nil, pack(kindList, uint32(maxNodes), make([]byte, maxNodes))), "more than"},
		{"items that are not there", message(nil, pack(kindList, uint32(math.MaxUint32))), "cut short"},
		{"a text that is not there", message(nil, pack(kindText, uint32(math.MaxUint32))), "cut short"},
		{"an int that is not there", message(nil, pack(kindInt, 200)), "cut short"},
		{"a list for a key", message(nil, pack(kindDict, uint32(1), kindList, uint32(0), 0)), "a key that is no plain value"},
		{"an array for a key", message(one, pack(kindDict, uint32(1), arrayOf(0, 8, 0, 0, 0, 0, 4, 1), 0)), "a key"},
		{"a reference ahead", message(nil, pack(kindAgain, uint16(0))), "a reference to no array"},
		{"no such storage", message(one, arrayOf(tensor, float32Code, 0, 0, 1, 0, 1, 1)), "unknown form"},
		{"no such kind", message(one, arrayOf(2, 0, 0, 0, 0, 0, 1, 1)), "unknown form"},
		{"no such dtype", message(one, arrayOf(tensor, 22, 0, 0, 0, 0, 1, 1)), "unknown form"},
		{"no such typecode", message(one, arrayOf(0, 10, 0, 0, 0, 0, 1, 1)), "unknown form"},
		{"another flag", message(one, arrayOf(tensor, float32Code, 2, 0, 0, 0, 1, 1)), "unknown form"},
		{"another device", message(one, arrayOf(tensor, float32Code, 0, 1, 0, 0, 1, 1)), "unknown form"},
		{"too many dimensions", message(one, arrayOf(tensor, float32Code, 0, 0, 0, 0, make([]int64, 2*(maxDims+1))...)), "unknown form"},
		{"array.array of two dimensions", message(one, arrayOf(0, 8, 0, 0, 0, 0, 2, 2, 2, 1)), "2 dimensions"},
		{"array.array with an offset", message(one, arrayOf(0, 8, 0, 0, 0, 1, 3, 1)), "does not fit"},
		{"array.array of another length", message(one, arrayOf(0, 8, 0, 0, 0, 0, 3, 1)), "does not fit"},
		{"one element too many", message(one, arrayOf(tensor, float32Code, 0, 0, 0, 1, 4, 1)), "does not fit"},
		{"a stride too far", message(one, arrayOf(tensor, float32Code, 0, 0, 0, 0, 2, 4)), "does not fit"},
		{"a negative length", message(one, arrayOf(tensor, float32Code, 0, 0, 0, 0, -1, 1)), "negative"},
		{"a negative stride", message(one, arrayOf(tensor, float32Code, 0, 0, 0, 3, 4, -1)), "negative"},
		{"a negative offset", message(one, arrayOf(tensor, float32Code, 0, 0, 0, -1, 1, 1)), "does not fit"},
		{"an empty one to walk along", message([][]byte{stored(0, 0, 0)}, arrayOf(tensor, float32Code, 0, 0, 0, 0, 1<<62, 0, 0, 1)), "4611686018427387904 elements in one dimension"},
		{"lengths that wrap", message(one, arrayOf(tensor, float32Code, 0, 0, 0, 0, 1<<62, 0, 1<<62, 0)), "more than 1 MiB"},
		{"one element as a terabyte", message(one, arrayOf(tensor, float32Code, 0, 0, 0, 0, 1<<38, 0)), "more than 1 MiB"},
		{"many times a little", message(one, list(3, slices.Repeat([][]byte{arrayOf(tensor, float32Code, 0, 0, 0, 0, 100_000, 0)}, 3)...)), "more than 1 MiB"},
	} {
		storages, err := decodeTree(tt.raw, testBounds)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: got %v, want it taken", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		case tt.want != "" && storages != nil:
			t.Errorf("%s: got storages beside an error", tt.name)
		}
	}
}

// An answer in C++ is described as its storages, because the judge checks these.
func TestDecodeTreeOfStorages(t *testing.T) {
	whole := testBounds
	whole.filled = true
	const uint8Code = 1
	for _, tt := range []struct {
		name  string
		array []byte
		ok    bool
	}{
		{"all of it", arrayOf(1, uint8Code, 0, 0, 0, 0, 16, 1), true},
		{"one element", arrayOf(1, uint8Code, 0, 0, 0, 0, 1, 1), false},
		{"one element many times", arrayOf(1, uint8Code, 0, 0, 0, 0, 16, 0), false},
		{"two dimensions", arrayOf(1, uint8Code, 0, 0, 0, 0, 16, 0, 1, 1), false},
		{"other elements", arrayOf(1, 8, 0, 0, 0, 0, 4, 1), false},
		{"no dimensions", arrayOf(1, uint8Code, 0, 0, 0, 0), false},
	} {
		if _, err := decodeTree(message([][]byte{stored(1, 0, 16)}, tt.array), whole); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want it taken: %v", tt.name, err, tt.ok)
		}
	}
}

func TestDecodeTexts(t *testing.T) {
	for _, tt := range []struct {
		raw  []byte
		want []string
	}{
		{pack(uint16(0)), nil},
		{pack(uint16(2), uint16(2), "ab", uint16(0)), []string{"ab", ""}},
		{nil, []string{"error"}},
		{pack(uint16(1)), []string{"error"}},
		{pack(uint16(1), uint16(3), "ab"), []string{"error"}},
		{pack(uint16(1), uint16(1), "ab"), []string{"error"}},
		{pack(uint16(maxTexts+1), make([]byte, 2*maxTexts+2)), []string{"error"}},
	} {
		got, err := decodeTexts(tt.raw)
		if wantErr := len(tt.want) == 1 && tt.want[0] == "error"; (err != nil) != wantErr || !wantErr && !slices.Equal(got, tt.want) {
			t.Errorf("decodeTexts(%x) = %q, %v, want %q", tt.raw, got, err, tt.want)
		}
	}
}

// encoder is a Python that makes messages of random trees, writes each as a line
// of hexadecimal digits, and then reads lines back. Lines of other messages it
// reads, too: it answers each with what it found, or with the error.
const encoder = channelHead + `
import json, random

draw = random.Random(int(sys.argv[1]))
arena = bytearray(8192)


class Place:
    """Where arrays go, one after the other; now and then where one lies already."""

    def __init__(self):
        self.next = 0

    def __call__(self, value, path):
        size = len(value) * value.itemsize
        start, self.next = self.next, aligned(self.next + size)
        if self.next > len(arena):
            raise Unsupported("no room")
        arena[start : start + size] = value.tobytes()
        return 1, start, size, 0, (len(value),), (1,)


def tree(depth):
    kind = draw.randrange(12 if depth < 5 else 7)
    if kind == 0:
        return draw.choice([None, True, False])
    if kind == 1:
        return draw.choice([0, -1, 127, 128, 255, -(1 << 63), 1 << 200, draw.randrange(-99, 99)])
    if kind == 2:
        return draw.choice([0.0, -0.0, 1e308, float("inf"), draw.random()])
    if kind == 3:
        return draw.choice(["", "word", "\u00e9\U0001f600", "\0", "x" * 300])
    if kind in (4, 5, 6):
        code = draw.choice(TYPECODES)
        return array.array(code, [draw.randrange(100) for _ in range(draw.randrange(20))])
    if kind in (7, 8, 9):
        return [tree(depth + 1) for _ in range(draw.randrange(4))]
    if kind == 10:
        return tuple(tree(depth + 1) for _ in range(draw.randrange(4)))
    return {draw.choice(["a", "b", 3, None, 1.5, True]): tree(depth + 1) for _ in range(draw.randrange(4))}


def shared(value):
    """One array at two places."""
    return [value, (value, [value])] if draw.random() < 0.3 else value


def read(raw):
    memory = {0: bytearray(4096), 1: bytearray(arena)}
    decoder = Decoder(raw, lambda number, start, size: memoryview(memory[number])[start : start + size])
    value = decoder.node()
    decoder.fill()
    if decoder.at != len(raw):
        raise ValueError("bytes are left")
    return value


made = 0
while made < int(sys.argv[2]):
    value = shared(tree(0))
    try:
        raw = Encoder(Place()).message(value)
    except Unsupported:
        continue
    made += 1
    back = read(raw)
    if repr(back) != repr(value):
        sys.exit(f"read {back!r}, written {value!r}")
    print(raw.hex())
sys.stdout.flush()

for line in sys.stdin:
    try:
        read(bytes.fromhex(line))
        print("")
    except ImportError:
        print("")  # a tensor, and no torch to read it
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "))
    sys.stdout.flush()
`

// channelHead makes channel.py's names the program's own.
const channelHead = "import sys\nexec(sys.argv[3])\n"

// encoded are messages that channel.py made of random trees.
func encoded(t testing.TB, seed, count int, more []string) (messages [][]byte, answers []string) {
	t.Helper()
	cmd := exec.Command(testenv.Python(t), "-I", "-c", encoder, fmt.Sprint(seed), fmt.Sprint(count), channelPy)
	cmd.Stdin = strings.NewReader(strings.Join(more, "\n"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("python: %v: %s", err, stderr.String())
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	for _, line := range lines[:count] {
		raw, err := hex.DecodeString(line)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, raw)
	}
	return messages, lines[count:]
}

// What channel.py writes, decodeTree takes; and what decodeTree takes of such
// messages with damage in them, channel.py reads without an error.
func TestTreesOfPython(t *testing.T) {
	messages, _ := encoded(t, 1, 300, nil)
	var kept []string
	taken, refused := 0, 0
	for i, raw := range messages {
		if _, err := decodeTree(raw, testBounds); err != nil {
			t.Fatalf("message %d: %v\n%x", i, err, raw)
		}
		for at := range raw { // one byte after the other is another
			for _, b := range []byte{0, 1, raw[at] + 1, raw[at] ^ 0x80, 255} {
				damaged := slices.Clone(raw)
				damaged[at] = b
				if _, err := decodeTree(damaged, testBounds); err != nil {
					refused++
				} else if taken++; taken%7 == 0 && len(kept) < 20_000 {
					kept = append(kept, hex.EncodeToString(damaged))
				}
			}
			if _, err := decodeTree(raw[:at], testBounds); err == nil {
				t.Errorf("message %d is taken when only %d of %d bytes are there", i, at, len(raw))
			}
		}
	}
	_, answers := encoded(t, 1, 1, kept)
	if len(answers) != len(kept) || refused == 0 || len(kept) < 100 {
		t.Fatalf("%d answers for %d messages, %d refused", len(answers), len(kept), refused)
	}
	faults := 0
	for i, answer := range answers {
		if answer != "" && faults < 5 {
			faults++
			t.Errorf("decodeTree takes what channel.py cannot read: %s\n%s", answer, kept[i])
		}
	}
	t.Logf("%d damaged messages taken, %d of them read by channel.py; %d refused", taken, len(kept), refused)
}

// FuzzDecodeTree holds that a message is refused or lies in its bounds, at once.
func FuzzDecodeTree(f *testing.F) {
	messages, _ := encoded(f, 2, 40, nil)
	for _, raw := range messages {
		f.Add(raw)
	}
	f.Add(emptyTree())
	f.Add(message([][]byte{stored(1, 256, 16)}, arrayOf(1, 8, 1, 0, 0, 0, 2, 2, 2, 1)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		found, err := decodeTree(raw, testBounds)
		if err != nil {
			if _, jsonErr := json.Marshal(err.Error()); jsonErr != nil || len(err.Error()) > 200 || found != nil {
				t.Errorf("error %q, layout %v", err, found)
			}
			return
		}
		storages := found.storages
		for _, e := range found.extents {
			for _, n := range []uint64{0, e.count / 2, e.count - 1} {
				if at := e.at(n); at < e.start || at+e.item > e.end || e.end > testBounds.sizes[e.arena] {
					t.Errorf("element %d of %+v lies at %d", n, e, at)
				}
			}
		}
		var held uint64
		for _, s := range storages {
			held += s.bytes
			if s.arena > arenaOutput || s.start+s.bytes > testBounds.sizes[s.arena] || s.start+s.bytes < s.start {
				t.Errorf("storage %+v", s)
			}
		}
		if len(storages) > maxStorages || held > 2*(testBounds.sizes[0]+testBounds.sizes[1]) || len(raw) > maxMessage {
			t.Errorf("%d storages of %d bytes in %d bytes", len(storages), held, len(raw))
		}
		if _, err := decodeTree(append(slices.Clone(raw), 0), testBounds); err == nil {
			t.Error("a byte more is taken, too")
		}
	})
}

// FuzzDecodeTexts holds that texts are whole and few, and that nothing is left.
func FuzzDecodeTexts(f *testing.F) {
	f.Add(pack(uint16(2), uint16(2), "ab", uint16(0)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := decodeTexts(raw)
		if err != nil {
			return
		}
		again := binary.LittleEndian.AppendUint16(nil, uint16(len(list)))
		for _, s := range list {
			again = append(binary.LittleEndian.AppendUint16(again, uint16(len(s))), s...)
		}
		if len(list) > maxTexts || !bytes.Equal(again, raw) {
			t.Errorf("%q of %x", list, raw)
		}
	})
}
