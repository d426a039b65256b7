package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/gpu-mode/kbgen/server/httpx"
	"github.com/gpu-mode/kbgen/server/identity"
)

var update = flag.Bool("update", false, "rewrite openapi.json from the routes and their types")

// object is a JSON object in the making.
type object = map[string]any

// openapi.json is what the routes and their types say.
func TestOpenAPI(t *testing.T) {
	want, err := json.MarshalIndent(describe(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(openAPI, want) {
		t.Error("openapi.json is not what the routes say: run make golden")
	}
}

// Every route that is served is described, and the other way round.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Responses   object
		}
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("openapi: got %q", doc.OpenAPI)
	}
	served := map[string]bool{}
	for _, r := range (&api{}).routes() {
		served[r.pattern] = true
	}
	for _, r := range identity.Routes {
		served[r.Pattern] = true
	}
	ids := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			pattern := strings.ToUpper(method) + " " + path
			if !served[pattern] {
				t.Errorf("%s is described and not served", pattern)
			}
			delete(served, pattern)
			if ids[op.OperationID] || op.OperationID == "" || len(op.Responses) < 2 {
				t.Errorf("%s: operation %q is there twice, or has no responses", pattern, op.OperationID)
			}
			ids[op.OperationID] = true
		}
	}
	for pattern := range served {
		t.Errorf("%s is served and not described", pattern)
	}
}

// describe makes the document.
func describe(t *testing.T) object {
	c := &components{t: t, comments: comments(t), made: object{}}
	paths := object{}
	add := func(pattern string, op object) {
		method, path, _ := strings.Cut(pattern, " ")
		if paths[path] == nil {
			paths[path] = object{}
		}
		op["operationId"] = operationID(method, path)
		var params []any
		for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
			s := object{"type": "string"}
			if name[1] == "id" {
				s = object{"type": "integer", "minimum": 1}
			}
			params = append(params, object{"name": name[1], "in": "path", "required": true, "schema": s})
		}
		if more, _ := op["parameters"].([]any); len(params)+len(more) > 0 {
			op["parameters"] = append(params, more...)
		}
		paths[path].(object)[strings.ToLower(method)] = op
	}
	for _, r := range (&api{}).routes() {
		add(r.pattern, c.operation(r))
	}
	for _, r := range identity.Routes {
		add(r.Pattern, object{"summary": r.About, "tags": []string{"log-in"}, "responses": object{"200": object{"description": "a page, or for programs JSON"}, "303": object{"description": "on to another page"}, "4XX": object{"description": "what is wrong"}}})
	}
	c.ref(reflect.TypeFor[httpx.Problem]())
	c.ref(reflect.TypeFor[FieldErrors]())
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "kbserve", "version": "1", "description": "Submissions of GPU kernels, their results and rankings. Routes without /api/v1 are those of popcorn-cli. Times of own routes are RFC 3339, scores are seconds and lower is better. Every answer has X-Request-Id; one that says no has a detail."},
		"paths":   paths,
		"components": object{"schemas": c.made, "securitySchemes": object{
			"cli":     object{"type": "apiKey", "in": "header", "name": identity.HeaderCLI},
			"admin":   object{"type": "http", "scheme": "bearer"},
			"session": object{"type": "apiKey", "in": "cookie", "name": "__Host-kbserve_session", "description": "a browser's; what changes something must be sent by a page of this server"},
		}},
	}
}

// FieldErrors is the body of status 422.
type FieldErrors struct {
	Detail []FieldError `json:"detail"`
}

func operationID(method, path string) string {
	words := regexp.MustCompile(`[^A-Za-z0-9]+`).Split(strings.ToLower(method)+path, -1)
	for i, w := range words {
		if i > 0 && w != "" {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

type components struct {
	t        *testing.T
	comments map[string]string // "Type" and "Type.Field"
	made     object
}

func (c *components) operation(r route) object {
	op := object{"summary": r.about, "tags": []string{tag(r)}}
	switch r.needs {
	case admin:
		op["security"] = []any{object{"admin": []string{}}}
	case user:
		op["security"] = []any{object{"cli": []string{}}, object{"session": []string{}}}
	case known:
		op["security"] = []any{object{"cli": []string{}}, object{"session": []string{}}, object{"admin": []string{}}}
	}
	var params []any
	for _, p := range r.query {
		params = append(params, object{"name": p.name, "in": "query", "description": p.about, "schema": object{"type": p.kind}})
	}
	if params != nil {
		op["parameters"] = params
	}
	if r.upload {
		op["requestBody"] = object{"required": true, "content": object{"multipart/form-data": object{"schema": object{"type": "object", "required": []string{"file"},
			"properties": object{"file": object{"type": "string", "contentMediaType": "application/octet-stream", "description": "UTF-8 without U+0000, at most 1000000 bytes; its name ends in .py, .cu, .cuh or .cpp"}}}}}}
	}
	if r.body != nil {
		op["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": c.schema(r.body)}}}
	}
	good := object{"description": "done"}
	switch {
	case r.answer != nil:
		good["content"] = object{"application/json": object{"schema": c.schema(r.answer)}}
	case r.media != "":
		good["content"] = object{r.media: object{"schema": object{"type": "string"}}}
	}
	problem := object{"description": "what is wrong", "content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}}}
	responses := object{strconv.Itoa(r.success()): good, "4XX": problem}
	if r.success() < 300 {
		responses["422"] = object{"description": "a field cannot be used", "content": object{"application/json": object{"schema": object{"$ref": "#/components/schemas/FieldErrors"}}}}
		responses["429"] = object{"description": "too often; Retry-After says when again", "content": problem["content"]}
	}
	op["responses"] = responses
	return op
}

func tag(r route) string {
	switch {
	case !r.own:
		return "popcorn-cli"
	case r.needs == admin:
		return "admin"
	}
	return "v1"
}

func (c *components) schema(t reflect.Type) any {
	if t.Kind() == reflect.Slice {
		return object{"type": "array", "items": c.schema(t.Elem())}
	}
	if t.Kind() == reflect.Struct {
		return c.ref(t)
	}
	return object{"type": t.Kind().String()}
}

// component is what the document calls a type: boardJSON is Board.
func component(name string) string {
	name = strings.TrimSuffix(name, "JSON")
	if rest, ok := strings.CutPrefix(name, "gpu"); ok {
		return "GPU" + rest
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// ref returns a reference to a type of ours, which is described once.
func (c *components) ref(t reflect.Type) object {
	to := object{"$ref": "#/components/schemas/" + component(t.Name())}
	if c.made[component(t.Name())] != nil {
		return to
	}
	c.made[component(t.Name())] = object{} // against a circle
	types := map[reflect.Type]*jsonschema.Schema{reflect.TypeFor[json.RawMessage](): {}, reflect.TypeFor[time.Time](): {Type: "string", Format: "date-time"}}
	c.nested(t, types)
	s, err := jsonschema.ForType(t, &jsonschema.ForOptions{TypeSchemas: types})
	if err != nil {
		c.t.Fatal(err)
	}
	s.Description, s.AdditionalProperties = strings.ReplaceAll(c.comments[t.Name()], t.Name(), component(t.Name())), nil
	listsAreThere(s)
	c.describe(t, s)
	c.made[component(t.Name())] = s
	return to
}

// nested makes references of the structs in a struct.
func (c *components) nested(t reflect.Type, types map[reflect.Type]*jsonschema.Schema) {
	for f := range t.Fields() {
		inner := f.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		switch {
		case inner.Kind() != reflect.Struct || inner.PkgPath() != t.PkgPath():
		case f.Anonymous:
			c.nested(inner, types)
		default:
			types[inner] = &jsonschema.Schema{Ref: c.ref(inner)["$ref"].(string)}
		}
	}
}

func (c *components) describe(t reflect.Type, s *jsonschema.Schema) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			c.describe(f.Type, s)
		} else if p := s.Properties[name]; p != nil {
			p.Description = c.comments[t.Name()+"."+f.Name]
			if f.Type.Kind() == reflect.Pointer && p.Ref != "" {
				s.Properties[name] = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Ref: p.Ref}, {Type: "null"}}, Description: p.Description}
			}
		}
	}
}

// listsAreThere: a list of ours is never null.
func listsAreThere(s *jsonschema.Schema) {
	if slices.Equal(s.Types, []string{"null", "array"}) {
		s.Type, s.Types = "array", nil
	}
	for _, p := range s.Properties {
		listsAreThere(p)
	}
	if s.Items != nil {
		listsAreThere(s.Items)
	}
}

// comments are what this package's source says of its types.
func comments(t *testing.T) map[string]string {
	found := map[string]string{"Problem": "What is wrong, in one line.", "FieldErrors": "Which fields cannot be used."}
	names, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), ".go") || strings.HasSuffix(n.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), n.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			g, is := d.(*ast.GenDecl)
			if !is || g.Tok != token.TYPE {
				continue
			}
			for _, spec := range g.Specs {
				of := spec.(*ast.TypeSpec)
				found[of.Name.Name] = strings.Join(strings.Fields(g.Doc.Text()), " ")
				if fields, is := of.Type.(*ast.StructType); is {
					for _, f := range fields.Fields.List {
						for _, name := range f.Names {
							found[of.Name.Name+"."+name.Name] = strings.TrimSpace(f.Comment.Text())
						}
					}
				}
			}
		}
	}
	return found
}
