package pipeline

import (
	_ "embed"
	"fmt"
	"sync"

	"github.com/xeipuuv/gojsonschema"
)

//go:embed format.json
var format []byte

const formatID = "https://github.com/gpu-mode/kbgen/schema/pipeline/format.json"

// definitions holds the compiled definitions of the format. Compiling all of
// them would take longer than everything else that kbgen does for one step,
// so each is compiled when it is first asked for.
var definitions compiler

// A compiler compiles definitions of the format and keeps them. It needs no
// network: every reference is within the one file.
type compiler struct {
	mu       sync.Mutex
	loader   *gojsonschema.SchemaLoader
	compiled map[string]*gojsonschema.Schema
}

// validate checks v by the definition called name. The error is a fault of the
// format itself; what is wrong with v stands in the result.
func (c *compiler) validate(name string, v any) (*gojsonschema.Result, error) {
	schema, err := c.definition(name)
	if err != nil {
		return nil, fmt.Errorf("compiling the pipeline format: %s: %w", name, err)
	}
	return schema.Validate(gojsonschema.NewRawLoader(v))
}

func (c *compiler) definition(name string) (*gojsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if schema, ok := c.compiled[name]; ok {
		return schema, nil
	}
	if c.loader == nil {
		loader := gojsonschema.NewSchemaLoader()
		loader.AutoDetect = false
		loader.Draft = gojsonschema.Draft7
		if err := loader.AddSchema(formatID, gojsonschema.NewBytesLoader(format)); err != nil {
			return nil, err
		}
		c.loader, c.compiled = loader, map[string]*gojsonschema.Schema{}
	}
	schema, err := c.loader.Compile(gojsonschema.NewReferenceLoader(formatID + "#/definitions/" + name))
	if err != nil {
		return nil, err
	}
	c.compiled[name] = schema
	return schema, nil
}
