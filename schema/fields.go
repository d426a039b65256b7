package schema

import (
	"strconv"

	"github.com/gpu-mode/kbgen/schema/text"
)

// fields takes an object apart and keeps the first fault, with the fields of the
// objects within it.
type fields struct {
	node *node
	path string
	err  *error
}

func (d *fields) fault(key, got, want string) {
	if *d.err == nil {
		*d.err = &Finding{Path: d.path + key, Got: got, Want: want}
	}
}

// within returns the fields of a member.
func (d *fields) within(key string, n *node) *fields {
	return &fields{node: n, path: d.path + key + ".", err: d.err}
}

// object reads a member that is an object; the zero value when it is absent or null.
func object[T any](d *fields, key string, read func(*fields) T) (out T) {
	if d.null(key) {
		return out
	}
	if v := d.get(key, true, kindObject); v != nil {
		out = read(d.within(key, v))
	}
	return out
}

// get returns the member, or nil when it is absent. An absent member that is
// needed, and one of another kind, is a fault.
func (d *fields) get(key string, needed bool, want kind) *node {
	v, ok := d.node.get(key)
	switch {
	case !ok:
		if needed {
			d.fault(key, "no such key", want.String())
		}
		return nil
	case v.kind != want:
		d.fault(key, v.kind.String(), want.String())
		return nil
	}
	return v
}

func (d *fields) str(key string, needed bool) string {
	if v := d.get(key, needed, kindString); v != nil {
		return v.text
	}
	return ""
}

func (d *fields) bool(key string, needed bool) bool {
	v := d.get(key, needed, kindBool)
	return v != nil && v.text == "true"
}

func (d *fields) strs(key string) []string {
	v := d.get(key, false, kindList)
	if v == nil {
		return nil
	}
	var list []string
	for i := range v.list {
		if v.list[i].kind != kindString {
			d.fault(key, v.list[i].kind.String()+" in the list", "strings")
			return nil
		}
		list = append(list, v.list[i].text)
	}
	return list
}

func (d *fields) int(key string) int64 {
	v := d.get(key, true, kindNumber)
	if v == nil {
		return 0
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil {
		d.fault(key, "another number", "an integer of 64 bits")
	}
	return n
}

func (d *fields) float(key string, needed bool) float64 {
	v := d.get(key, needed, kindNumber)
	if v == nil {
		return 0
	}
	f, err := strconv.ParseFloat(v.text, 64)
	if err != nil {
		d.fault(key, "a number out of range", "a number")
	}
	return f
}

// null reports whether the key is absent or null.
func (d *fields) null(key string) bool {
	v, ok := d.node.get(key)
	return !ok || v.kind == kindNull
}

func (d *fields) files(key string, needed bool) Files {
	v := d.get(key, needed, kindObject)
	if v == nil {
		return nil
	}
	var files Files
	for _, m := range v.members {
		if m.value.kind != kindString {
			d.fault(key, m.value.kind.String()+" for "+text.Quote(m.name), "the file's text")
			return nil
		}
		files = append(files, File{m.name, m.value.text})
	}
	return files
}

func (d *fields) defines() []Define {
	v := d.get("defines", false, kindObject)
	if v == nil {
		return nil
	}
	var defines []Define
	for _, m := range v.members {
		switch m.value.kind {
		case kindNull:
			defines = append(defines, Define{Name: m.name})
		case kindString:
			defines = append(defines, Define{m.name, &m.value.text})
		default:
			d.fault("defines", m.value.kind.String()+" for "+text.Quote(m.name), "a string or null")
		}
	}
	return defines
}

func (d *fields) cases(key string) []Case {
	v := d.get(key, false, kindList)
	if v == nil {
		return nil
	}
	var cases []Case
	for i := range v.list {
		if v.list[i].kind != kindObject {
			d.fault(key, v.list[i].kind.String()+" in the list", "objects")
			return nil
		}
		var c Case
		for j := range v.list[i].members {
			m := &v.list[i].members[j]
			c = append(c, Param{m.name, nodeValue(&m.value)})
		}
		cases = append(cases, c)
	}
	return cases
}

func (d *fields) timeout(key string) Timeout {
	v, ok := d.node.get(key)
	switch {
	case !ok:
		return Timeout{}
	case v.kind == kindNull:
		return NoLimit()
	}
	return Seconds(d.float(key, true))
}

func (d *fields) seed() *int64 {
	if d.null("seed") {
		return nil
	}
	n := d.int("seed")
	return &n
}

func (d *fields) arch() *string {
	v, ok := d.node.get("arch")
	if !ok || v.kind == kindNull {
		return nil
	}
	if v.kind == kindNumber {
		return &v.text
	}
	s := d.str("arch", true)
	return &s
}
