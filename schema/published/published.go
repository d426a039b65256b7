// Package published holds the JSON Schemas (draft 2020-12) of what the commands
// read and print, one file each, for whoever reads that with a program. They are
// made from the Go types by the tests of the packages that own them: make golden
// rewrites them, and the tests fail when one is not what its type says.
package published

import (
	"embed"
	"slices"
	"strings"
)

//go:embed *.json
var files embed.FS

// Names lists the schemas there are, in order: "result", "payload", …
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // of an embedded directory
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json"))
	}
	slices.Sort(names)
	return names
}

// Get returns a schema, or false when there is none of that name.
func Get(name string) ([]byte, bool) {
	text, err := files.ReadFile(name + ".json")
	return text, err == nil
}
