package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// Filter is the engine's spelling of filters: name to values.
func Filter(filters map[string][]string) url.Values {
	raw, _ := json.Marshal(filters) // strings only
	return url.Values{"filters": {string(raw)}}
}

// Inspect looks at the container with an ID, the beginning of one, or a name.
func (c *Client) Inspect(ctx context.Context, name string) (id string, labels map[string]string, err error) {
	var one struct {
		ID     string `json:"Id"`
		Config struct {
			Labels map[string]string
		}
	}
	err = c.Do(ctx, http.MethodGet, "/containers/"+name+"/json", nil, nil, &one)
	return one.ID, one.Config.Labels, err
}

// Wait waits for what condition says, "not-running", "next-exit" or "removed", and
// returns the exit status.
func (c *Client) Wait(ctx context.Context, id, condition string) (int, error) {
	var ended struct{ StatusCode int }
	err := c.Do(ctx, http.MethodPost, "/containers/"+id+"/wait", url.Values{"condition": {condition}}, nil, &ended)
	return ended.StatusCode, err
}

// Remove kills and removes a container with its anonymous volumes, and waits until
// it is gone. One that is gone already is no error.
func (c *Client) Remove(ctx context.Context, id string) error {
	err := c.Do(ctx, http.MethodDelete, "/containers/"+id, url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
	if Is(err, http.StatusConflict) { // the engine removes it already
		_, err = c.Wait(ctx, id, "removed")
	}
	if err != nil && !Is(err, http.StatusNotFound) {
		return fmt.Errorf("removing container %.12s: %w", id, err)
	}
	return nil
}

// Reap removes all containers with a label, "key=value", those that have ended as
// well, and returns how many there were.
func (c *Client) Reap(ctx context.Context, label string) (int, error) {
	query := Filter(map[string][]string{"label": {label}})
	query.Set("all", "1")
	var all []struct {
		ID string `json:"Id"`
	}
	if err := c.Do(ctx, http.MethodGet, "/containers/json", query, nil, &all); err != nil {
		return 0, err
	}
	var faults []error
	for _, one := range all {
		faults = append(faults, c.Remove(ctx, one.ID))
	}
	return len(all), errors.Join(faults...)
}
