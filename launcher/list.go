package launcher

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

const (
	perPage  = 100
	maxPages = 50
)

// list lists builds of the pipeline, all pages.
func (c *Client) list(ctx context.Context, q url.Values) ([]Build, error) {
	return pages[Build](ctx, c, c.path+"/builds", q)
}

// pages gets every page of a list.
func pages[T any](ctx context.Context, c *Client, path string, q url.Values) ([]T, error) {
	q.Set("per_page", strconv.Itoa(perPage))
	var all []T
	for page, n := 1, 0; page > 0; n++ {
		if n == maxPages {
			return nil, fmt.Errorf("GET %s: more than %d pages", path, maxPages)
		}
		if page > 1 {
			q.Set("page", strconv.Itoa(page))
		}
		var part []T
		resp, err := c.do(ctx, http.MethodGet, path+"?"+q.Encode(), nil, &part)
		if err != nil {
			return nil, err
		}
		all = append(all, part...)
		page = resp.NextPage
	}
	return all, nil
}

// build gets one build with the latest attempt of each job.
func (c *Client) build(ctx context.Context, number int) (*Build, error) {
	path, err := c.buildPath(number)
	if err != nil {
		return nil, err
	}
	b := &Build{}
	if _, err := c.do(ctx, http.MethodGet, path+"?exclude_pipeline=true", nil, b); err != nil {
		return nil, err
	}
	return b, nil
}
