package templates

import (
	"embed"
	"strings"

	"github.com/gpu-mode/kbgen/schema/text"
)

//go:embed secretd kbserve
var unitFiles embed.FS

// A Secretd is a node's broker of secrets as systemd starts it: a socket, and a
// service that begins with the first question.
type Secretd struct {
	Program string // kbnode itself, "/usr/bin/kbnode"
	Config  string // "/etc/kbnode/secretd.yml"
	// Credential is a private key that systemd-creds encrypted for this machine; it
	// is then the key that the config calls secret.key. Empty: keys are files.
	Credential string
	Socket     string // "/run/kbnode/secretd.sock"
	Group      string // of those who may ask
	AnyUser    bool   // may ask: jobs prove by tokens who they are
}

// CredentialName is what the config calls a key that systemd hands over.
const CredentialName = "secret.key"

var groupPattern = text.Pattern(`^[a-z_][a-z0-9_-]{0,31}$`)

// Service returns kbnode-secretd.service.
//
// Errors: *[PlaceholderError].
func (s *Secretd) Service() (string, error) {
	const what = "unit kbnode-secretd.service"
	for _, p := range []struct{ name, path string }{{"program", s.Program}, {"config", s.Config}, {"credential", s.Credential}} {
		if p.name == "credential" && p.path == "" {
			continue
		}
		if err := fits(what, p.name, p.path, pathPattern, "an absolute path"); err != nil {
			return "", err
		}
	}
	credential := ""
	if s.Credential != "" {
		credential = "LoadCredentialEncrypted=" + CredentialName + ":" + s.Credential + "\n"
	}
	return fill("secretd/kbnode-secretd.service", "@KBNODE@", s.Program, "@CONFIG@", s.Config, "@CREDENTIAL@", credential)
}

// SocketUnit returns kbnode-secretd.socket.
//
// Errors: *[PlaceholderError].
func (s *Secretd) SocketUnit() (string, error) {
	const what = "unit kbnode-secretd.socket"
	if err := fits(what, "socket", s.Socket, pathPattern, "an absolute path"); err != nil {
		return "", err
	}
	if err := fits(what, "group", s.Group, groupPattern, "the name of a group"); err != nil {
		return "", err
	}
	mode := "0660"
	if s.AnyUser {
		mode = "0666"
	}
	return fill("secretd/kbnode-secretd.socket", "@SOCKET@", s.Socket, "@GROUP@", s.Group, "@MODE@", mode)
}

func fill(name string, pairs ...string) (string, error) {
	body, err := unitFiles.ReadFile(name)
	if err != nil {
		return "", err
	}
	return strings.NewReplacer(pairs...).Replace(string(body)), nil
}
