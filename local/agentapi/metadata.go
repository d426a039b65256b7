package agentapi

import "github.com/gpu-mode/kbgen/local/engine"

// A datum is one entry of a build's meta-data.
type datum struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (a *API) setData(c *call, body datum) (any, error) {
	return nil, a.engine.SetMetaData(c.job.BuildID, map[string]string{body.Key: body.Value})
}

func (a *API) setDataBatch(c *call, body struct {
	Items []datum `json:"items"`
}) (any, error) {
	if len(body.Items) == 0 {
		return nil, unusable("items: got none, want at least one")
	}
	items := map[string]string{}
	for _, item := range body.Items {
		items[item.Key] = item.Value
	}
	return nil, a.engine.SetMetaData(c.job.BuildID, items)
}

// getData answers 404 when there is no such key: `meta-data get --default`
// counts on it.
func (a *API) getData(c *call, body datum) (any, error) {
	value, ok, err := a.lookUp(c, body.Key)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, engine.Refuse(engine.NotFound, "No key \"%s\" found", body.Key)
	}
	return datum{body.Key, value}, nil
}

func (a *API) dataExists(c *call, body datum) (any, error) {
	_, ok, err := a.lookUp(c, body.Key)
	if err != nil {
		return nil, err
	}
	return map[string]bool{"exists": ok}, nil
}

func (a *API) lookUp(c *call, key string) (string, bool, error) {
	if key == "" {
		return "", false, unusable("key: got none")
	}
	return a.engine.GetMetaData(c.job.BuildID, key)
}

func (a *API) dataKeys(c *call) (any, error) {
	keys, err := a.engine.MetaDataKeys(c.job.BuildID)
	if err == nil && keys == nil {
		keys = []string{}
	}
	return keys, err
}
