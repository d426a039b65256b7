package templates

import "github.com/gpu-mode/kbgen/schema/text"

// A Kbserve is the competition's backend as systemd or docker compose starts it.
type Kbserve struct {
	Program string // kbserve itself, "/usr/bin/kbserve"
	Config  string // lines NAME=value, "/etc/kbserve/kbserve.env"
	Listen  string // "127.0.0.1:8080"
	Image   string // of the container, "kbserve:v1.2.3"
}

var listenPattern = text.Pattern(`^[0-9A-Za-z.:\[\]-]{1,100}:[0-9]{1,5}$`)

// Service returns kbserve.service.
//
// Errors of this and the other methods: *[PlaceholderError].
func (k *Kbserve) Service() (string, error) {
	const what = "unit kbserve.service"
	if err := fits(what, "program", k.Program, pathPattern, "an absolute path"); err != nil {
		return "", err
	}
	if err := fits(what, "config", k.Config, pathPattern, "an absolute path"); err != nil {
		return "", err
	}
	return fill("kbserve/kbserve.service", "@KBSERVE@", k.Program, "@CONFIG@", k.Config)
}

// SocketUnit returns kbserve.socket.
func (k *Kbserve) SocketUnit() (string, error) {
	if err := fits("unit kbserve.socket", "listen", k.Listen, listenPattern, "ADDRESS:PORT"); err != nil {
		return "", err
	}
	return fill("kbserve/kbserve.socket", "@LISTEN@", k.Listen)
}

// Compose returns a compose file with PostgreSQL.
func (k *Kbserve) Compose() (string, error) {
	const what = "compose.yml"
	if err := fits(what, "listen", k.Listen, listenPattern, "ADDRESS:PORT"); err != nil {
		return "", err
	}
	if err := fits(what, "image", k.Image, imagePattern, "the name of an image"); err != nil {
		return "", err
	}
	if err := fits(what, "config", k.Config, pathPattern, "an absolute path"); err != nil {
		return "", err
	}
	return fill("kbserve/compose.yml", "@LISTEN@", k.Listen, "@IMAGE@", k.Image, "@CONFIG@", k.Config)
}

// KbserveDockerfile returns the recipe of kbserve's image.
func KbserveDockerfile() (string, error) { return fill("kbserve/kbserve.Dockerfile") }
