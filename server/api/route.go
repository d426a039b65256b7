package api

import (
	"net/http"
	"reflect"
)

// Who may call a route. What they then may see and do is package backend's.
type need int

const (
	anybody need = iota
	known        // a user or an admin
	user         // somebody with an account
	admin
)

// A route is one method and path, and everything that openapi.json says of it.
type route struct {
	pattern string // "GET /api/v1/boards/{board}"
	about   string
	own     bool // ours; otherwise Kernelbot's
	needs   need
	query   []param
	upload  bool         // the body is a form with a file
	body    reflect.Type // of JSON; nil: none
	answer  reflect.Type // of JSON; nil: a stream or text
	media   string       // of the answer, when it is no JSON
	status  int          // of success; 0: 200
	stream  bool
	do      func(*call) (any, error)
}

func (r route) success() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// A param is one value in a query.
type param struct {
	name  string
	kind  string // string, integer or boolean
	about string
}

func is[T any]() reflect.Type { return reflect.TypeFor[T]() }

func (a *api) routes() []route {
	return append(append(popcornRoutes(), popcornAdminRoutes()...), ownRoutes()...)
}
