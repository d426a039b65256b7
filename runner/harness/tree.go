package harness

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Bounds of a message from the worker; channel.py keeps to them.
const (
	maxMessage  = 128 << 10 // bytes
	maxTree     = 96 << 10  // of an answer: the judge gets it in one message with its places
	maxNodes    = 10_000
	maxDepth    = 24
	maxDims     = 16
	maxStorages = 4096
)

// Kinds of node in a tree.
const (
	kindNone, kindFalse, kindTrue, kindInt, kindFloat, kindText = 0, 1, 2, 3, 4, 5
	kindTuple, kindList, kindDict, kindArray, kindAgain         = 6, 7, 8, 9, 10
)

// itemSizes are the bytes per element, in the order of channel.py's TYPECODES
// (kind 0, array.array) and DTYPES (kind 1, torch.Tensor).
var itemSizes = [2][]uint64{
	{1, 1, 2, 2, 4, 4, 8, 8, 4, 8},
	{1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16, 1, 1, 1, 1, 1, 1, 2, 4, 8, 4},
}

// The arenas' numbers. Those from arenaDevice on lie on a device.
const (
	arenaInput        = 0
	arenaOutput       = 1
	arenaDevice       = 2
	arenaDeviceInput  = 2
	arenaDeviceOutput = 3
)

// A storage is a piece of an arena, in bytes.
type storage struct {
	arena        int
	start, bytes uint64
}

// An extent is where the elements of an array lie in the arenas. An array without
// elements has none.
type extent struct {
	arena          int
	start, end     uint64 // of its storage, in bytes of the arena
	offset, item   uint64 // of the first element, in elements; bytes of an element
	count          uint64 // elements, at least one
	shape, strides []uint64
}

func (e *extent) equal(o *extent) bool {
	return e.arena == o.arena && e.start == o.start && e.end == o.end && e.offset == o.offset && e.item == o.item &&
		slices.Equal(e.shape, o.shape) && slices.Equal(e.strides, o.strides)
}

// at returns where an element begins, in bytes of the arena; n counts as C does, the
// last dimension first.
func (e *extent) at(n uint64) uint64 {
	place := e.offset
	for i := len(e.shape) - 1; i >= 0; i-- {
		place += n % e.shape[i] * e.strides[i]
		n /= e.shape[i]
	}
	return e.start + place*e.item
}

// A layout is where the arrays of an answer lie.
type layout struct {
	storages []storage
	extents  []extent
	values   bool // the answer has numbers or texts, too, which travel in the message
	tree     []byte
}

// equal reports whether two answers have the same layout. The contents of their arrays,
// numbers and texts may differ.
func (l *layout) equal(o *layout) bool {
	return slices.Equal(l.storages, o.storages) && slices.EqualFunc(l.extents, o.extents, func(a, b extent) bool { return a.equal(&b) }) &&
		l.values == o.values && (l.values || bytes.Equal(l.tree, o.tree))
}

// bounds is what a message may refer to.
type bounds struct {
	sizes   [2]uint64 // of the arenas
	logical uint64    // bytes that all arrays may have together, counted element by element
	device  [2]uint64 // of the arenas on a device; 0: there is none
	// filled requires each array to be all of its storage, in bytes, as the launcher describes
	// it. The judge of a C++ task checks storages, but late writes are looked for in arrays.
	filled bool
}

// hold reports whether a storage lies in an arena that there is.
func (b *bounds) hold(s storage) bool {
	var size uint64
	switch {
	case s.arena < arenaDevice:
		size = b.sizes[s.arena]
	case s.arena > arenaDeviceOutput || b.device[s.arena-arenaDevice] == 0:
		return false
	default:
		size = b.device[s.arena-arenaDevice]
	}
	return s.start <= size && s.bytes <= size-s.start
}

// decodeTree looks through a message: every storage lies in an arena, every
// array in its storage, and nothing in it costs more to read than it should. It
// returns where the arrays lie. The bytes can be handed to the judge as they are.
//
// Errors say what is wrong in words for the submission's author; they quote
// numbers only.
func decodeTree(raw []byte, b bounds) (*layout, error) {
	if len(raw) > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes, at most %d are allowed", len(raw), maxMessage)
	}
	d := treeDecoder{raw: raw, bounds: b}
	count := int(d.uint16())
	if count > maxStorages {
		return nil, fmt.Errorf("%d arrays, at most %d are allowed", count, maxStorages)
	}
	for range count {
		s := storage{int(d.byte()), d.uint64(), d.uint64()}
		if d.short {
			break
		}
		if !b.hold(s) {
			return nil, fmt.Errorf("an array outside of the memory for it")
		}
		d.storages = append(d.storages, s)
	}
	// The judge copies one storage after the other, so no byte may be in two of them: its
	// late writes would be looked for in one copy, and its value checked in the other.
	if overlap(d.storages) {
		return nil, fmt.Errorf("arrays whose memory overlaps in part")
	}
	d.used = make([]bool, len(d.storages))
	d.node(0)
	switch {
	case d.err != nil:
		return nil, d.err
	case d.short:
		return nil, fmt.Errorf("a message that is cut short")
	case len(d.raw) > 0:
		return nil, fmt.Errorf("a message with %d bytes too many", len(d.raw))
	case slices.Contains(d.used, false): // copying it gives time
		return nil, fmt.Errorf("memory that no array uses")
	}
	return &layout{d.storages, d.extents, d.values, bytes.Clone(raw)}, nil
}

// overlap reports whether two of the storages have a byte in common.
func overlap(storages []storage) bool {
	list := slices.DeleteFunc(slices.Clone(storages), func(s storage) bool { return s.bytes == 0 })
	slices.SortFunc(list, func(a, b storage) int {
		return cmp.Or(cmp.Compare(a.arena, b.arena), cmp.Compare(a.start, b.start))
	})
	for i := range list[:max(len(list)-1, 0)] {
		if a, b := list[i], list[i+1]; a.arena == b.arena && a.start+a.bytes > b.start {
			return true
		}
	}
	return false
}

type treeDecoder struct {
	raw      []byte
	bounds   bounds
	storages []storage
	used     []bool // which storages an array lies in
	extents  []extent
	values   bool // there are numbers or texts that are no keys
	nodes    int
	arrays   int
	logical  uint64
	short    bool
	err      error
}

func (d *treeDecoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func (d *treeDecoder) take(n int) []byte {
	if n > len(d.raw) {
		d.short, d.raw = true, nil
		return make([]byte, min(n, 16))
	}
	taken := d.raw[:n]
	d.raw = d.raw[n:]
	return taken
}

func (d *treeDecoder) byte() byte     { return d.take(1)[0] }
func (d *treeDecoder) uint16() uint16 { return binary.LittleEndian.Uint16(d.take(2)) }
func (d *treeDecoder) uint32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *treeDecoder) uint64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

// node reads one value and what is below it.
func (d *treeDecoder) node(depth int) {
	if d.nodes++; d.nodes > maxNodes || depth > maxDepth {
		d.fail("more than %d values or %d levels", maxNodes, maxDepth)
	}
	if d.err != nil || d.short {
		return
	}
	switch kind := d.byte(); kind {
	case kindNone:
	case kindFalse, kindTrue:
		d.values = true
	case kindInt:
		d.take(int(d.byte()))
		d.values = true
	case kindFloat:
		d.take(8)
		d.values = true
	case kindText:
		d.take(int(min(d.uint32(), maxMessage+1)))
		d.values = true
	case kindTuple, kindList:
		d.items(d.uint32(), depth, false)
	case kindDict:
		d.items(d.uint32(), depth, true)
	case kindArray:
		d.array()
	case kindAgain:
		if int(d.uint16()) >= d.arrays {
			d.fail("a reference to no array")
		}
	default:
		d.fail("a value of the unknown kind %d", kind)
	}
}

func (d *treeDecoder) items(count uint32, depth int, keys bool) {
	known := map[string]bool{}
	for range count {
		if d.err != nil || d.short {
			return
		}
		if keys {
			before, values := d.raw, d.values
			d.node(depth + 1)
			if d.err != nil || d.short {
				return
			}
			key := plainKey(before[:len(before)-len(d.raw)])
			switch {
			case key == "":
				d.fail("a key that is no plain value")
			case known[key]: // the last one would count
				d.fail("a key twice")
			}
			known[key], d.values = true, values
		}
		d.node(depth + 1)
	}
}

// plainKey returns the same text for keys that Python treats as equal, such as 1, 1.0 and
// True. It returns "" if the key is not a plain value.
func plainKey(node []byte) string {
	if len(node) == 0 || node[0] > kindText || node[0] == kindText && !utf8.Valid(node[5:]) {
		return ""
	}
	switch node[0] {
	case kindFalse, kindTrue:
		return strconv.Itoa(int(node[0] - kindFalse))
	case kindFloat:
		if f := math.Float64frombits(binary.LittleEndian.Uint64(node[1:])); f == math.Trunc(f) && !math.IsInf(f, 0) {
			whole, _ := big.NewFloat(f).Int(nil)
			return whole.String()
		}
	case kindInt: // little-endian, signed
		raw := slices.Clone(node[2:])
		slices.Reverse(raw)
		whole := new(big.Int).SetBytes(raw)
		if len(raw) > 0 && raw[0] >= 0x80 {
			whole.Sub(whole, new(big.Int).Lsh(big.NewInt(1), uint(8*len(raw))))
		}
		return whole.String()
	}
	return string(node)
}

func (d *treeDecoder) array() {
	kind, code, flags, device, dims := d.byte(), d.byte(), d.byte(), d.byte(), int(d.byte())
	at, offset := int(d.uint16()), d.uint64()
	if d.short {
		return
	}
	if kind > 1 || int(code) >= len(itemSizes[min(kind, 1)]) || flags > 1 || dims > maxDims || at >= len(d.storages) {
		d.fail("an array of an unknown form")
		return
	}
	if kind == 0 && dims != 1 {
		d.fail("an array.array with %d dimensions", dims)
		return
	}
	if wants := d.storages[at].arena >= arenaDevice; device > 1 || wants != (device == 1) || wants && kind == 0 {
		d.fail("an array of an unknown form: on another device than its memory")
		return
	}
	d.used[at] = true
	item, held := itemSizes[kind][code], d.storages[at].bytes
	count, last, longest, fits := uint64(1), offset, uint64(0), offset <= math.MaxInt64
	lies := d.storages[at]
	e := extent{arena: lies.arena, start: lies.start, end: lies.start + held, offset: offset, item: item}
	for range dims {
		length, stride := d.uint64(), d.uint64()
		if length > math.MaxInt64 || stride > math.MaxInt64 {
			d.fail("an array with a negative length or stride")
			return
		}
		longest = max(longest, length)
		e.shape, e.strides = append(e.shape, length), append(e.strides, stride)
		if count = mul(count, length); length > 0 {
			last = add(last, mul(length-1, stride))
		}
	}
	if d.short {
		return
	}
	if d.bounds.filled && (dims != 1 || item != 1 || offset != 0 || count != held || e.strides[0] != 1) {
		d.fail("an array that is not all of its memory")
	}
	d.arrays++
	if count > 0 { // an empty one touches nothing
		fits = fits && mul(add(last, 1), item) <= held
	} else if longest > d.bounds.logical { // a check may walk along it
		d.fail("an empty array of %d elements in one dimension", longest)
	}
	if kind == 0 {
		fits = fits && offset == 0 && mul(count, item) == held
	}
	if !fits {
		d.fail("an array that does not fit into its memory")
	}
	if e.count = count; count > 0 && fits {
		d.extents = append(d.extents, e)
	}
	if d.logical = add(d.logical, mul(count, item)); d.logical > d.bounds.logical {
		d.fail("an output of more than %d MiB", d.bounds.logical>>20)
	}
}

// mul and add stay at the largest number instead of passing it.
func mul(a, b uint64) uint64 {
	if b != 0 && a > math.MaxUint64/b {
		return math.MaxUint64
	}
	return a * b
}

func add(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// maxTexts is how many texts one message holds at most.
const maxTexts = 128

// decodeTexts reads a list of texts.
func decodeTexts(raw []byte) ([]string, error) {
	d := treeDecoder{raw: raw}
	count := int(d.uint16())
	if count > maxTexts {
		return nil, fmt.Errorf("%d texts, at most %d are allowed", count, maxTexts)
	}
	var list []string
	for range count {
		if d.short {
			break
		}
		list = append(list, string(d.take(int(d.uint16()))))
	}
	if d.short || len(d.raw) > 0 {
		return nil, fmt.Errorf("a message of another length than it says")
	}
	return list, nil
}
