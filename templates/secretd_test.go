package templates

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func secretd() *Secretd {
	return &Secretd{
		Program: "/bin/true", Config: "/etc/kbnode/secretd.yml", Credential: "/etc/kbnode/secret.cred",
		Socket: "/run/kbnode/secretd.sock", Group: "buildkite-agent",
	}
}

func TestSecretdUnits(t *testing.T) {
	s := secretd()
	service, err := s.Service()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := s.SocketUnit()
	if err != nil {
		t.Fatal(err)
	}
	for unit, wants := range map[string][]string{
		service: {"ExecStart=/bin/true secretd --config /etc/kbnode/secretd.yml\n", "LoadCredentialEncrypted=secret.key:/etc/kbnode/secret.cred\n", "CapabilityBoundingSet=\n"},
		socket:  {"ListenStream=/run/kbnode/secretd.sock\n", "SocketGroup=buildkite-agent\n", "SocketMode=0660\n"},
	} {
		for _, want := range wants {
			if !strings.Contains(unit, want) {
				t.Errorf("a unit lacks %q:\n%s", want, unit)
			}
		}
		if i := regexp.MustCompile(`@[A-Z]+@`).FindString(unit); i != "" {
			t.Errorf("a placeholder is left: %s", i)
		}
	}
	s.Credential = ""
	if service, err = s.Service(); err != nil || strings.Contains(service, "LoadCredential") {
		t.Errorf("without a credential (%v):\n%s", err, service)
	}
	for name, change := range map[string]func(*Secretd){
		"program":    func(s *Secretd) { s.Program = "kbnode" },
		"config":     func(s *Secretd) { s.Config = "/etc/x\nExecStartPost=/bin/sh" },
		"credential": func(s *Secretd) { s.Credential = "../x" },
		"socket":     func(s *Secretd) { s.Socket = "/run/a b" },
		"group":      func(s *Secretd) { s.Group = "a\nb" },
	} {
		s := secretd()
		change(s)
		_, err := s.Service()
		_, socketErr := s.SocketUnit()
		if placeholder := new(PlaceholderError); !errors.As(errors.Join(err, socketErr), &placeholder) {
			t.Errorf("a wrong %s: got %v, %v", name, err, socketErr)
		}
	}
}

var exposure = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

// systemd reads both units, where there is one to ask, and finds the service
// well shut in.
func TestSecretdUnitsAreVerified(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze on PATH")
	}
	dir := t.TempDir()
	service, err := secretd().Service()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := secretd().SocketUnit()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"kbnode-secretd.service": service, "kbnode-secretd.socket": socket} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	verify := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, "kbnode-secretd.service"), filepath.Join(dir, "kbnode-secretd.socket"))
	verify.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
	out, _ := verify.CombinedOutput() // its status tells of other units as well
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "kbnode-secretd") {
			t.Errorf("systemd: %s", line)
		}
	}
	out, err = exec.Command(analyze, "security", "--offline=true", "--no-pager", filepath.Join(dir, "kbnode-secretd.service")).CombinedOutput()
	m := exposure.FindStringSubmatch(string(out))
	if m == nil {
		t.Skipf("this systemd-analyze tells no exposure: %v", err)
	}
	if level, _ := strconv.ParseFloat(m[1], 64); level > 2.0 {
		t.Errorf("exposure %s, want at most 2.0:\n%s", m[1], out)
	}
}
