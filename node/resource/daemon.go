package resource

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/gpu-mode/kbgen/node"
)

// Merged reports whether kbnode only sets a key in the file at this path, docker's
// daemon.json. The rest of the file, its mode and its owner are the vendor's.
func Merged(name string) bool { return name == node.DaemonJSON }

// Returnable reports whether kbnode can undo a file although its content is not in the
// ledger: another release wrote the file, or kbnode only set a key in it.
func Returnable(name string, content []byte) bool {
	_, err := CDI(content)
	return Owned(content) || Merged(name) && err == nil
}

// CDI returns features.cdi of a daemon.json, nil if it is not set.
func CDI(content []byte) (json.RawMessage, error) {
	_, features, err := daemon(content)
	return features["cdi"], err
}

// SetCDI returns a daemon.json with another value of features.cdi. A nil value removes
// the key, and features if nothing else is in it.
func SetCDI(content []byte, value json.RawMessage) ([]byte, error) {
	all, features, err := daemon(content)
	if err != nil {
		return nil, err
	}
	features["cdi"] = value
	if value == nil {
		delete(features, "cdi")
	}
	if all["features"], err = json.Marshal(features); err != nil {
		return nil, err
	}
	if len(features) == 0 {
		delete(all, "features")
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(all)
	return out.Bytes(), err
}

// daemon reads a daemon.json. An empty file is one without settings.
func daemon(content []byte) (all, features map[string]json.RawMessage, err error) {
	if len(bytes.TrimSpace(content)) > 0 {
		if err := json.Unmarshal(content, &all); err != nil {
			return nil, nil, err
		}
	}
	if raw := all["features"]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &features); err != nil {
			return nil, nil, fmt.Errorf("features: %w", err)
		}
	}
	if all == nil {
		all = map[string]json.RawMessage{}
	}
	if features == nil {
		features = map[string]json.RawMessage{}
	}
	return all, features, nil
}
