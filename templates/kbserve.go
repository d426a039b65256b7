package templates

import "github.com/gpu-mode/kbgen/schema/text"

// A Kbserve is the competition's backend as systemd or docker compose starts it.
type Kbserve struct {
	Program string // kbserve itself, "/usr/bin/kbserve"
	Config  string // lines NAME=value, "/etc/kbserve/kbserve.env"
	Listen  string // "127.0.0.1:8080"
	Image   string // of the container, "kbserve:v1.2.3"
}

var listenAddress = form{text.Pattern(`^[0-9A-Za-z.:\[\]-]{1,100}:[0-9]{1,5}$`), "ADDRESS:PORT"}

// Service returns kbserve.service.
//
// Errors of this and the other methods: *[PlaceholderError].
func (k *Kbserve) Service() (string, error) {
	values := []value{{"program", k.Program, absolutePath}, {"config", k.Config, absolutePath}}
	return fill("kbserve/kbserve.service", "unit kbserve.service", values, "@KBSERVE@", k.Program, "@CONFIG@", k.Config)
}

// SocketUnit returns kbserve.socket.
func (k *Kbserve) SocketUnit() (string, error) {
	return fill("kbserve/kbserve.socket", "unit kbserve.socket", []value{{"listen", k.Listen, listenAddress}}, "@LISTEN@", k.Listen)
}

// Compose returns a compose file with PostgreSQL.
func (k *Kbserve) Compose() (string, error) {
	image := form{agentImage.pattern, "the name of an image"}
	values := []value{{"listen", k.Listen, listenAddress}, {"image", k.Image, image}, {"config", k.Config, absolutePath}}
	return fill("kbserve/compose.yml", "compose.yml", values, "@LISTEN@", k.Listen, "@IMAGE@", k.Image, "@CONFIG@", k.Config)
}

// KbserveDockerfile returns the recipe of kbserve's image.
func KbserveDockerfile() (string, error) { return fill("kbserve/kbserve.Dockerfile", "", nil) }
