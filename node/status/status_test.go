package status

import "testing"

// The settings of the last apply are one line, with signatures only if steps need them.
func TestSettings(t *testing.T) {
	for want, n := range map[string]Node{
		"a of v; queue file /n.yml; endpoint Buildkite's": {Node: "a", Vendor: "v", QueueFile: "/n.yml"},
		"a of v; queue file not known; endpoint http://x; steps must be signed; may be small": {
			Node: "a", Vendor: "v", Endpoint: "http://x", VerificationJWKS: "/k", AllowSmall: true,
		},
	} {
		if got := n.Settings(); got != want {
			t.Errorf("Settings() = %q, want %q", got, want)
		}
	}
}
