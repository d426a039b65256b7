package secrets

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/gpu-mode/kbgen/schema/text"
)

// StoreFile is where a repository keeps its envelopes.
const StoreFile = ".buildkite/secrets.kb.yaml"

// maxStore bounds a store file, bytes.
const maxStore = 4 << 20

// An Entry is one secret of a store file.
type Entry struct {
	Name string
	Line int // of its name; from 1

	// What the envelope says within, for those who cannot open it. Nothing but
	// an audit reads it.
	KeyID           string
	Issued, Expires time.Time // days

	Envelope string
}

// A Store is the content of a store file:
//
//	version: 1
//	secrets:
//	  CODECOV_TOKEN:
//	    kid: lab-2026
//	    issued: 2026-11-22
//	    expires: 2027-11-22
//	    envelope: kbsec1:…
//
// Comments and order survive [Store.Set].
type Store struct {
	root    *yaml.Node
	list    *yaml.Node // of the secrets, in root
	Entries []Entry    // in their order
}

// NewStore returns an empty one.
func NewStore() *Store {
	s, err := ParseStore([]byte("# Values that only the vendors' nodes can read. Written by: kbgen secret encrypt --store\nversion: 1\nsecrets: {}\n"))
	if err != nil {
		panic(err)
	}
	s.list.Style = 0
	return s
}

// ParseStore reads a store file.
//
// Errors name the line, all of them joined; none quotes an envelope.
func ParseStore(file []byte) (*Store, error) {
	if len(file) > maxStore {
		return nil, fmt.Errorf("got %d bytes, want at most %d", len(file), maxStore)
	}
	var root yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(file))
	if err := d.Decode(&root); err != nil {
		return nil, fmt.Errorf("not YAML: %s", text.Line(err.Error(), 200))
	}
	if err := d.Decode(new(yaml.Node)); err != io.EOF {
		return nil, errors.New("got more than one document")
	}
	s := &Store{root: &root}
	doc := root.Content[0]
	if doc.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: got no mapping, want version and secrets", doc.Line)
	}
	var version *yaml.Node
	for i := 0; i < len(doc.Content); i += 2 {
		switch key := doc.Content[i]; key.Value {
		case "version":
			version = doc.Content[i+1]
		case "secrets":
			s.list = doc.Content[i+1]
		default:
			return nil, fmt.Errorf("line %d: got key %s, want version or secrets", key.Line, text.Quote(key.Value))
		}
	}
	if version == nil || version.Value != "1" {
		return nil, errors.New("got no version 1")
	}
	if s.list == nil || s.list.Kind != yaml.MappingNode {
		return nil, errors.New("got no mapping secrets")
	}
	var faults []error
	for i := 0; i < len(s.list.Content); i += 2 {
		e, err := parseEntry(s.list.Content[i], s.list.Content[i+1])
		switch {
		case err != nil:
			faults = append(faults, err)
		case slices.ContainsFunc(s.Entries, func(o Entry) bool { return o.Name == e.Name }):
			faults = append(faults, fmt.Errorf("line %d: got %s again", e.Line, e.Name))
		default:
			s.Entries = append(s.Entries, *e)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return s, nil
}

func parseEntry(key, value *yaml.Node) (*Entry, error) {
	e := &Entry{Name: key.Value, Line: key.Line}
	if err := CheckName(e.Name); err != nil {
		return nil, fmt.Errorf("line %d: %w", e.Line, err)
	}
	if value.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: %s: got no mapping, want kid, issued, expires and envelope", e.Line, e.Name)
	}
	for i := 0; i < len(value.Content); i += 2 {
		k, v := value.Content[i], value.Content[i+1]
		var err error
		switch k.Value {
		case "kid":
			if e.KeyID = v.Value; !keyIDPattern().MatchString(v.Value) {
				err = errors.New("got no key id")
			}
		case "issued":
			e.Issued, err = time.Parse(time.DateOnly, v.Value)
		case "expires":
			e.Expires, err = time.Parse(time.DateOnly, v.Value)
		case "envelope":
			e.Envelope = v.Value
			_, err = envelopeFile(v.Value, maxEnvelope)
		default:
			err = errors.New("want kid, issued, expires or envelope")
		}
		if _, wrong := errors.AsType[*time.ParseError](err); wrong {
			err = fmt.Errorf("got %s, want a day as 2026-12-31", text.Quote(v.Value))
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %s: %w", k.Line, e.Name, text.Line(k.Value, 40), err)
		}
	}
	if e.Envelope == "" {
		return nil, fmt.Errorf("line %d: %s: got no envelope", e.Line, e.Name)
	}
	return e, nil
}

// Lookup finds an entry.
func (s *Store) Lookup(name string) (*Entry, bool) {
	i := slices.IndexFunc(s.Entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return nil, false
	}
	return &s.Entries[i], true
}

// Set puts a sealed secret into the store, in the place of one with its name or
// at the end.
func (s *Store) Set(secret *Secret, envelope string) {
	e := Entry{
		Name: secret.Name, KeyID: secret.KeyID, Envelope: envelope,
		Issued: secret.Issued.UTC().Truncate(24 * time.Hour), Expires: secret.Expires.UTC().Truncate(24 * time.Hour),
	}
	value := &yaml.Node{Kind: yaml.MappingNode}
	for _, pair := range [][2]string{
		{"kid", e.KeyID}, {"issued", e.Issued.Format(time.DateOnly)}, {"expires", e.Expires.Format(time.DateOnly)}, {"envelope", envelope},
	} {
		value.Content = append(value.Content, scalar(pair[0]), scalar(pair[1]))
	}
	if i := slices.IndexFunc(s.Entries, func(o Entry) bool { return o.Name == e.Name }); i >= 0 {
		e.Line = s.Entries[i].Line
		s.Entries[i], s.list.Content[2*i+1] = e, value
		return
	}
	s.Entries = append(s.Entries, e)
	s.list.Content = append(s.list.Content, scalar(e.Name), value)
}

func scalar(value string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: value} }

// Encode is the file's text.
func (s *Store) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(s.root); err != nil {
		return nil, fmt.Errorf("encoding the store: %w", err)
	}
	if b.Len() > maxStore {
		return nil, fmt.Errorf("got %d bytes, want at most %d", b.Len(), maxStore)
	}
	return b.Bytes(), nil
}
