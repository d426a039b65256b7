package harness

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Bounds of a message from the worker; channel.py keeps to them.
const (
	maxMessage  = 128 << 10 // bytes
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
}

func (l *layout) equal(o *layout) bool {
	return slices.Equal(l.storages, o.storages) && slices.EqualFunc(l.extents, o.extents, func(a, b extent) bool { return a.equal(&b) })
}

// bounds is what a message may refer to.
type bounds struct {
	sizes   [2]uint64 // of the arenas
	logical uint64    // bytes that all arrays may have together, counted element by element
	device  [2]uint64 // of the arenas on a device; 0: there is none
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
	var held, have uint64
	for _, size := range slices.Concat(b.sizes[:], b.device[:]) {
		have = add(have, size)
	}
	for range count {
		s := storage{int(d.byte()), d.uint64(), d.uint64()}
		if d.short {
			break
		}
		if !b.hold(s) {
			return nil, fmt.Errorf("an array outside of the memory for it")
		}
		// The judge copies each: many names for one place must not cost more.
		if held += s.bytes; held > mul(2, have) {
			return nil, fmt.Errorf("arrays that overlap too much")
		}
		d.storages = append(d.storages, s)
	}
	d.node(0)
	switch {
	case d.err != nil:
		return nil, d.err
	case d.short:
		return nil, fmt.Errorf("a message that is cut short")
	case len(d.raw) > 0:
		return nil, fmt.Errorf("a message with %d bytes too many", len(d.raw))
	}
	return &layout{d.storages, d.extents}, nil
}

type treeDecoder struct {
	raw      []byte
	bounds   bounds
	storages []storage
	extents  []extent
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
	case kindNone, kindFalse, kindTrue:
	case kindInt:
		d.take(int(d.byte()))
	case kindFloat:
		d.take(8)
	case kindText:
		d.take(int(min(d.uint32(), maxMessage+1)))
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
	for range count {
		if d.err != nil || d.short {
			return
		}
		if keys {
			if len(d.raw) > 0 && d.raw[0] > kindText {
				d.fail("a key that is no plain value")
			}
			d.node(depth + 1)
		}
		d.node(depth + 1)
	}
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
