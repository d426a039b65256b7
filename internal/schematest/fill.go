package schematest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"
)

// Fill gives every field below v a value that is not its zero, so that nothing
// is left out where v is written down. Values that only a type's own code can
// make come from special.
func Fill(v any, special map[reflect.Type]any) {
	fill(reflect.ValueOf(v).Elem(), special)
}

func fill(v reflect.Value, special map[reflect.Type]any) {
	if s, ok := special[v.Type()]; ok {
		v.Set(reflect.ValueOf(s))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("text")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), special)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), special)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), special)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, special)
		fill(value, special)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), special)
			}
		}
	default:
		panic(fmt.Sprintf("a %s has no value to fill in", v.Type()))
	}
}

// CheckFilled is [Check] with one example: a value of the document's type that
// has everything.
func CheckFilled(t *testing.T, d Document, update bool, special map[reflect.Type]any) {
	t.Helper()
	full := reflect.New(d.Type)
	Fill(full.Interface(), special)
	text, err := json.Marshal(full.Interface())
	if err != nil {
		t.Fatal(err)
	}
	Check(t, d, update, text)
}
