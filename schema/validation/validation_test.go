package validation

import (
	"fmt"
	"strings"
	"testing"
)

func TestUnusableSchemas(t *testing.T) {
	for _, c := range []struct{ schema, definition, want string }{
		{`{"$ref": "#/definitions/none"}`, "", "no key 'definitions'"},
		{`{"definitions": {"a": {}}}`, "b", "no key 'b'"},
		{`{"pattern": "("}`, "", "pattern"},
		{`{"type": `, "", "EOF"},
		{`[`, "x", "unexpected EOF"},
	} {
		_, err := New([]byte(c.schema)).Validate(c.definition, "text")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Validate by %s = %v, want an error with %q", c.schema, err, c.want)
		}
	}
}

// A refused name of a property is one fault: gojsonschema reports its reason
// beside it, at the place of the object.
func TestPropertyNamesAreOneFault(t *testing.T) {
	schema := New([]byte(`{"propertyNames": {"pattern": "^[a-z]+$", "not": {"const": "b"}, "maxLength": 3}, "additionalProperties": {"pattern": "^x"}}`))
	for range 20 { // the order of a map
		faults, err := schema.Validate("", map[string]any{"A B C": "x", "b": "y", "c": "x"})
		if got, want := fmt.Sprint(faults, err), "[{[] propertyNames A B C} {[] propertyNames b} {[b] pattern }] <nil>"; got != want {
			t.Fatalf("Validate = %s, want %s", got, want)
		}
	}
}

func ExampleSchema_Validate() {
	schema := New([]byte(`{"type": "object", "required": ["queue"], "additionalProperties": {"type": "string"}}`))
	faults, err := schema.Validate("", map[string]any{"arch": true})
	fmt.Println(faults, err)
	// Output: [{[] required queue} {[arch] type }] <nil>
}
