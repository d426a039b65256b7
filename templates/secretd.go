package templates

import "github.com/gpu-mode/kbgen/schema/text"

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

var groupName = form{text.Pattern(`^[a-z_][a-z0-9_-]{0,31}$`), "the name of a group"}

// Service returns kbnode-secretd.service.
//
// Errors: *[PlaceholderError].
func (s *Secretd) Service() (string, error) {
	values := []value{{"program", s.Program, absolutePath}, {"config", s.Config, absolutePath}}
	credential := ""
	if s.Credential != "" {
		values = append(values, value{"credential", s.Credential, absolutePath})
		credential = "LoadCredentialEncrypted=" + CredentialName + ":" + s.Credential + "\n"
	}
	return fill("secretd/kbnode-secretd.service", "unit kbnode-secretd.service", values, "@KBNODE@", s.Program, "@CONFIG@", s.Config, "@CREDENTIAL@", credential)
}

// SocketUnit returns kbnode-secretd.socket.
//
// Errors: *[PlaceholderError].
func (s *Secretd) SocketUnit() (string, error) {
	values := []value{{"socket", s.Socket, absolutePath}, {"group", s.Group, groupName}}
	mode := "0660"
	if s.AnyUser {
		mode = "0666"
	}
	return fill("secretd/kbnode-secretd.socket", "unit kbnode-secretd.socket", values, "@SOCKET@", s.Socket, "@GROUP@", s.Group, "@MODE@", mode)
}
