package jsonschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// definitions finds the definitions of a document without reading what is in
// them: most runs need a handful.
func definitions(doc []byte) (map[string]json.RawMessage, error) {
	found := map[string]json.RawMessage{}
	err := members(doc, func(name string, value []byte) error {
		if name != "definitions" {
			return nil
		}
		return members(value, func(name string, value []byte) error {
			found[name] = value
			return nil
		})
	})
	return found, err
}

var errScan = errors.New("not a JSON object")

// members calls each with the members of the JSON object that doc is. It finds
// where values end and looks no closer; whoever decodes one does.
func members(doc []byte, each func(name string, value []byte) error) error {
	i := blank(doc, 0)
	if i >= len(doc) || doc[i] != '{' {
		return errScan
	}
	i = blank(doc, i+1)
	for i < len(doc) && doc[i] != '}' {
		end, err := skip(doc, i)
		if err != nil {
			return err
		}
		name, err := unquote(doc[i:end])
		if err != nil {
			return fmt.Errorf("a member's name: %w", err)
		}
		i = blank(doc, end)
		if i >= len(doc) || doc[i] != ':' {
			return errScan
		}
		i = blank(doc, i+1)
		if end, err = skip(doc, i); err != nil {
			return err
		}
		if err := each(name, doc[i:end]); err != nil {
			return err
		}
		i = blank(doc, end)
		if i < len(doc) && doc[i] == ',' {
			i = blank(doc, i+1)
		}
	}
	if i >= len(doc) {
		return errScan
	}
	return nil
}

// unquote reads a JSON string.
func unquote(raw []byte) (string, error) {
	if len(raw) >= 2 && raw[0] == '"' && raw[len(raw)-1] == '"' && bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}

func blank(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\n' || doc[i] == '\t' || doc[i] == '\r') {
		i++
	}
	return i
}

// skip returns where the value that begins at i ends.
func skip(doc []byte, i int) (int, error) {
	depth := 0
	for ; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			for i++; i < len(doc) && doc[i] != '"'; i++ {
				if doc[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				if i >= len(doc) {
					return 0, errScan
				}
				return i + 1, nil
			}
		case '{', '[':
			depth++
		case '}', ']', ',', ' ', '\n', '\t', '\r':
			if depth == 0 { // the end of what encloses a number or a word
				return i, nil
			}
			if doc[i] == '}' || doc[i] == ']' {
				if depth--; depth == 0 {
					return i + 1, nil
				}
			}
		}
	}
	return 0, errScan
}
