package restapi

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/gpu-mode/kbgen/local/engine"
)

const (
	defaultPerPage = 30
	maxPerPage     = 100
)

// perPage reads per_page; more than the maximum is the maximum.
func perPage(q url.Values) int {
	n, err := strconv.Atoi(q.Get("per_page"))
	if err != nil || n < 1 {
		return defaultPerPage
	}
	return min(n, maxPerPage)
}

// page cuts the page asked for out of all results and sets the Link header. A
// page too deep is refused.
func page[T any](c *call, all []T) ([]T, error) {
	q := c.r.URL.Query()
	size := perPage(q)
	n, err := strconv.Atoi(q.Get("page"))
	if err != nil || n < 1 {
		n = 1
	}
	if n-1 >= (maxDepth+size-1)/size {
		return nil, engine.Refuse(engine.BadRequest, "The listing ends after %d results: narrow the query, by created_from or branch for example", maxDepth)
	}
	last := max(1, (len(all)+size-1)/size)
	var links []string
	add := func(rel string, page int) {
		q.Set("page", strconv.Itoa(page))
		q.Set("per_page", strconv.Itoa(size))
		links = append(links, fmt.Sprintf(`<%s%s?%s>; rel="%s"`, c.base(), c.r.URL.EscapedPath(), q.Encode(), rel))
	}
	if n < last {
		add("next", n+1)
		add("last", last)
	}
	if n > 1 {
		add("prev", min(n-1, last))
		add("first", 1)
	}
	if links != nil {
		c.w.Header().Set("Link", strings.Join(links, ", "))
	}
	from := min((n-1)*size, len(all))
	return all[from:min(from+size, len(all))], nil
}

// listing answers with the page asked for.
func listing[T, S any](c *call, all []T, show func(T) S) error {
	shown, err := page(c, all)
	if err != nil {
		return err
	}
	return c.ok(render(shown, show))
}

func same[T any](v T) T { return v }

// render shows the engine's values as resources. An empty list is [], not null.
func render[T, S any](all []T, show func(T) S) []S {
	out := make([]S, len(all))
	for i, v := range all {
		out[i] = show(v)
	}
	return out
}
