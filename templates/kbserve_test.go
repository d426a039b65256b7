package templates

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

func backendService() *Kbserve {
	return &Kbserve{Program: "/bin/true", Config: "/etc/kbserve/kbserve.env", Listen: "127.0.0.1:8080", Image: "kbserve:v1.2.3"}
}

func TestKbserveTexts(t *testing.T) {
	k := backendService()
	for name, tt := range map[string]struct {
		make  func(*Kbserve) (string, error)
		wants []string
	}{
		"service": {(*Kbserve).Service, []string{"ExecStart=/bin/true serve --config ${CREDENTIALS_DIRECTORY}/kbserve.env\n", "LoadCredential=kbserve.env:/etc/kbserve/kbserve.env\n", "Type=notify\n", "Requires=kbserve.socket\n"}},
		"socket":  {(*Kbserve).SocketUnit, []string{"ListenStream=127.0.0.1:8080\n"}},
		"image":   {func(*Kbserve) (string, error) { return KbserveDockerfile() }, []string{"COPY kbserve /usr/bin/kbserve\n", "USER 65532:65532\n"}},
		"compose": {(*Kbserve).Compose, []string{"image: kbserve:v1.2.3\n", `ports: ["127.0.0.1:8080:8080"]`, "env_file: [/etc/kbserve/kbserve.env]"}},
	} {
		text, err := tt.make(k)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range tt.wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, text)
			}
		}
		if left := regexp.MustCompile(`@[A-Z]+@`).FindString(text); left != "" {
			t.Errorf("%s: a placeholder is left: %s", name, left)
		}
	}
	for name, change := range map[string]func(*Kbserve){
		"program": func(k *Kbserve) { k.Program = "kbserve" },
		"config":  func(k *Kbserve) { k.Config = "/etc/x\nExecStartPost=/bin/sh" },
		"listen":  func(k *Kbserve) { k.Listen = "8080\nListenStream=1" },
		"image":   func(k *Kbserve) { k.Image = "a b" },
	} {
		k := backendService()
		change(k)
		_, service := k.Service()
		_, socket := k.SocketUnit()
		_, compose := k.Compose()
		if placeholder := new(PlaceholderError); !errors.As(errors.Join(service, socket, compose), &placeholder) {
			t.Errorf("a wrong %s is filled in", name)
		}
	}
}

// The compose file is YAML, and its server has no more than it needs.
func TestKbserveCompose(t *testing.T) {
	text, err := backendService().Compose()
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Services map[string]struct {
			Image    string
			Command  []string
			ReadOnly bool     `yaml:"read_only"`
			CapDrop  []string `yaml:"cap_drop"`
			Secrets  []string
			Ports    []string
		}
		Secrets map[string]any
	}
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		t.Fatal(err)
	}
	s := file.Services["kbserve"]
	if len(file.Services) != 2 || !s.ReadOnly || len(s.CapDrop) != 1 || len(s.Command) == 0 || len(file.Services["postgres"].Ports) != 0 {
		t.Errorf("the services are %+v", file.Services)
	}
	for _, service := range file.Services {
		for _, secret := range service.Secrets {
			if _, there := file.Secrets[secret]; !there {
				t.Errorf("secret %s is not declared", secret)
			}
		}
	}
}

// systemd reads both units, where there is one to ask, and finds the service well
// shut in.
func TestKbserveUnitsAreVerified(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("NOT RUN: no systemd-analyze on PATH")
	}
	dir := t.TempDir()
	service, err := backendService().Service()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := backendService().SocketUnit()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"kbserve.service": service, "kbserve.socket": socket} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	verify := exec.Command(analyze, "verify", "--man=no", filepath.Join(dir, "kbserve.service"), filepath.Join(dir, "kbserve.socket"))
	verify.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
	out, _ := verify.CombinedOutput() // its status tells of other units as well
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "kbserve") {
			t.Errorf("systemd: %s", line)
		}
	}
	out, err = exec.Command(analyze, "security", "--offline=true", "--no-pager", filepath.Join(dir, "kbserve.service")).CombinedOutput()
	m := exposure.FindStringSubmatch(string(out))
	if m == nil {
		t.Skipf("NOT RUN: this systemd-analyze tells no exposure: %v", err)
	}
	if m[1] > "2.0" {
		t.Errorf("the exposure is %s, want at most 2.0:\n%s", m[1], out)
	}
}
