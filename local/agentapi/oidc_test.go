package agentapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/gpu-mode/kbgen/local/engine"
)

// A client of the field's library believes what the stand-in signs, and nothing
// that was changed.
func TestOIDCTokens(t *testing.T) {
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	defer server.Close()
	w := newRig(t, Options{Issuer: server.URL})
	mux.HandleFunc(DiscoveryPath, w.api.ServeDiscovery)
	mux.HandleFunc(KeysPath, w.api.ServeKeys)
	b := w.build("steps: [{command: a, key: post}]")
	path, token, _ := w.running(b)

	answer := w.want(200, "", token, "POST", path+"/oidc/tokens", `{"audience":"kbnode","lifetime":60,"claims":["organization_id","pipeline_id","queue_id","queue_key"]}`)
	raw, _ := answer.get("token").(string)
	ctx := context.Background()
	provider, err := oidc.NewProvider(ctx, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	now := w.engine.Now
	verify := func(audience string, raw string) (*oidc.IDToken, error) {
		return provider.Verifier(&oidc.Config{ClientID: audience, Now: now}).Verify(ctx, raw)
	}
	id, err := verify("kbnode", raw)
	if err != nil {
		t.Fatal(err)
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"job_id": b.Jobs[0].ID, "pipeline_slug": b.Pipeline, "step_key": "post", "organization_id": engine.OrganizationID, "queue_key": "default", "sub": "organization:gpu-mode:pipeline:" + b.Pipeline + ":ref:refs/heads/" + b.Branch + ":commit:" + b.Commit + ":step:post",
	} {
		if claims[name] != want {
			t.Errorf("claim %s: got %v, want %v", name, claims[name], want)
		}
	}
	if p, _ := w.engine.Pipeline(b.Pipeline); claims["pipeline_id"] != p.ID || claims["queue_id"] == nil || claims["build_id"] != nil {
		t.Errorf("claims to be asked for: %v", claims)
	}
	if life := id.Expiry.Sub(id.IssuedAt); life != time.Minute {
		t.Errorf("the token lives %s, want a minute", life)
	}
	if _, err := verify("somebody else", raw); err == nil {
		t.Error("a token for another audience was believed")
	}
	head, rest, _ := strings.Cut(raw, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	if _, err := verify("kbnode", head+"."+payload[:len(payload)-4]+"AAAA."+signature); err == nil {
		t.Error("a changed token was believed")
	}
	w.clock.pass(2 * time.Minute)
	if _, err := verify("kbnode", raw); err == nil {
		t.Error("an expired token was believed")
	}
	for body, want := range map[string]string{
		`{"claims":["shoe_size"]}`:        "have build_id, cluster_id, cluster_name",
		`{"lifetime":99999}`:              "lifetime: got 99999",
		`{"subject_claim":"pipeline_id"}`: "does not implement",
	} {
		w.want(422, want, token, "POST", path+"/oidc/tokens", body)
	}
}
