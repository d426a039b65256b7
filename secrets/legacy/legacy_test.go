package legacy

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func privateKey(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	key, err := ParsePrivateKey(read(t, "private.pem"))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestOpen(t *testing.T) {
	for name, want := range map[string]Value{
		"v0.txt":         {Format: V0},
		"v1.txt":         {Format: V1, Passphrase: 64},
		"adhoc-weak.txt": {Format: AdHoc, Passphrase: 9},
	} {
		got, err := Open(privateKey(t), string(read(t, name)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if string(got.Text) != "hunter2" || got.Format != want.Format || got.Passphrase != want.Passphrase {
			t.Errorf("%s: got %q, %s, passphrase of %d; want hunter2, %s, %d", name, got.Text, got.Format, got.Passphrase, want.Format, want.Passphrase)
		}
		if got.Weak() != (name == "adhoc-weak.txt") {
			t.Errorf("%s: weak is %t", name, got.Weak())
		}
	}
}

func TestOpenWithARepositoryKey(t *testing.T) {
	key, err := OpenRepositoryKey(privateKey(t), read(t, "repo_key"))
	if err != nil || len(key) != 128 {
		t.Fatalf("repository key: %d bytes, %v, want 128", len(key), err)
	}
	v, err := OpenVariable(key, string(read(t, "variable.txt")))
	if err != nil || string(v.Text) != "hunter2" || v.Format != Variable || v.Passphrase != 128 || v.Weak() {
		t.Errorf("variable: got %+v, %v", v, err)
	}
	// A file of cryptic's encrypt_file is a container without base64.
	file, err := openContainer(Passphrase(key), read(t, "file.encrypted"))
	if err != nil || string(file) != "line 1\nline 2\n" {
		t.Errorf("file: got %q, %v, want both lines with their ends", file, err)
	}
	if _, err := Open(privateKey(t), string(read(t, "variable.txt"))); !errors.Is(err, ErrFormat) {
		t.Errorf("Open of a variable: got %v, want ErrFormat", err)
	}
}

// The vector on which openssl and Go agreed when the formats were examined.
func TestContainer(t *testing.T) {
	line := "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVm"
	const container = "U2FsdGVkX18AAQIDBAUGBzvIPfluhvR181QPgWSMga4="
	salt, _ := hex.DecodeString("0001020304050607")
	sealed, err := sealContainer(bytes.NewReader(salt), Passphrase([]byte(line+"\nignored\n")), []byte("hunter2\n"))
	if err != nil || base64.StdEncoding.EncodeToString(sealed) != container {
		t.Errorf("sealed: got %x, %v, want %s", sealed, err, container)
	}
	raw, _ := base64.StdEncoding.DecodeString(container)
	opened, err := openContainer([]byte(line), raw)
	if err != nil || string(opened) != "hunter2\n" {
		t.Errorf("opened: got %q, %v", opened, err)
	}
}

func TestPassphrase(t *testing.T) {
	for file, want := range map[string]string{
		"abc\ndef":                   "abc",
		"abc\r\ndef":                 "abc\r",
		"ab\x00cd":                   "ab",
		"":                           "",
		"\nabc":                      "",
		strings.Repeat("x", 2000):    strings.Repeat("x", 1023),
		"no end":                     "no end",
		strings.Repeat("y", 64) + "": strings.Repeat("y", 64),
	} {
		if got := string(Passphrase([]byte(file))); got != want {
			t.Errorf("Passphrase(%.20q): got %d bytes, want %d", file, len(got), len(want))
		}
	}
}

// Whatever is wrong, there is one answer, and nothing of the value in it.
func TestOneAnswerForEveryFault(t *testing.T) {
	key := privateKey(t)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := string(read(t, "v1.txt"))
	head, tail, _ := strings.Cut(text, ";")
	swapped := func(part string, at int) string { // one character for another
		c := byte('A')
		if part[at] == c {
			c = 'B'
		}
		return part[:at] + string(c) + part[at+1:]
	}
	for what, try := range map[string]func() (*Value, error){
		"another key":    func() (*Value, error) { return Open(other, text) },
		"changed block":  func() (*Value, error) { return Open(key, swapped(head, 9)+";"+tail) },
		"changed end":    func() (*Value, error) { return Open(key, head+";"+swapped(tail, 30)) },
		"a v0 block cut": func() (*Value, error) { return Open(key, base64.StdEncoding.EncodeToString(make([]byte, 128))) },
	} {
		v, err := try()
		if err == nil && string(v.Text) == "hunter2" || err != nil && v != nil {
			t.Errorf("%s: got a value, and %v", what, err)
		}
		if err != nil && err != ErrOpen {
			t.Errorf("%s: got %v, want %v", what, err, ErrOpen)
		}
	}
	for _, text := range []string{"", ";", "x", "AAAA", "hunter2", "!!!!;!!!!", head + ";AAAA", head + ";", strings.Repeat("A", maxText+4), head + "\n" + head} {
		if _, err := Open(key, text); !errors.Is(err, ErrFormat) {
			t.Errorf("Open(%.20q): got %v, want %v", text, err, ErrFormat)
		}
	}
}

func TestSealV1(t *testing.T) {
	key := privateKey(t)
	for _, value := range [][]byte{[]byte("hunter2"), []byte("  a  b "), []byte("*"), []byte("-n"), []byte(`back\slash`), []byte("two\nlines\n"), []byte("\r\n"), {}, bytes.Repeat([]byte("x"), 32<<10)} {
		text, err := SealV1(rand.Reader, &key.PublicKey, value)
		if err != nil {
			t.Fatalf("SealV1(%.20q): %v", value, err)
		}
		got, err := Open(key, text)
		if err != nil || !bytes.Equal(got.Text, value) || got.Format != V1 || got.Passphrase != 64 {
			t.Errorf("Open(SealV1(%.20q)): got %+v, %v", value, got, err)
		}
	}
	if _, err := SealV1(rand.Reader, &key.PublicKey, make([]byte, maxText)); err == nil {
		t.Error("a value that no variable can carry was sealed")
	}
}

// The command lines of tools/encrypt and tools/decrypt, with the openssl of this
// machine: what they write we read, what we write they read.
func TestOriginalCommandLines(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Skip("openssl is not installed: the original command lines cannot be run; their recorded output is read by TestOpen")
	}
	dir := t.TempDir()
	run := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.Command(openssl, args...)
		cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("openssl %q: %v", args, err)
		}
		return string(out)
	}
	keyFile, keyPath := filepath.Join(dir, "key"), filepath.Join("testdata", "private.pem")
	key := privateKey(t)
	for name, random := range map[string][]string{"v1": {"rand", "-base64", "128"}, "cryptic": {"rand", "128"}} {
		var made string
		for made == "" || len(Passphrase([]byte(made))) == 0 { // openssl encrypts with no empty one
			made = run("", random...)
		}
		if err := os.WriteFile(keyFile, []byte(made), 0o600); err != nil {
			t.Fatal(err)
		}
		head := run(run("", "rsautl", "-encrypt", "-pubin", "-inkey", filepath.Join("testdata", "public.pem"), "-in", keyFile), "base64", "-A")
		tail := run(run("s3cret value\n", "enc", "-aes-256-cbc", "-salt", "-pbkdf2", "-iter", "100000", "-pass", "file:"+keyFile), "base64", "-A")
		v, err := Open(key, head+";"+tail)
		if err != nil || string(v.Text) != "s3cret value" {
			t.Errorf("%s: got %+v, %v", name, v, err)
		}
	}
	for _, value := range []string{"hunter2", "  a  b", "-----BEGIN X-----\nMII\n-----END X-----", `C:\*`} {
		text, err := SealV1(rand.Reader, &key.PublicKey, []byte(value))
		if err != nil {
			t.Fatal(err)
		}
		head, tail, _ := strings.Cut(text, ";")
		opened := run(run(head+"\n", "base64", "-d", "-A"), "rsautl", "-decrypt", "-inkey", keyPath)
		if err := os.WriteFile(keyFile, []byte(opened), 0o600); err != nil {
			t.Fatal(err)
		}
		got := run(run(tail+"\n", "base64", "-d", "-A"), "enc", "-d", "-aes-256-cbc", "-pbkdf2", "-iter", "100000", "-pass", "file:"+keyFile)
		if got != value+"\n" {
			t.Errorf("openssl reads %q where %q was sealed", got, value)
		}
	}
}

func TestParseKeys(t *testing.T) {
	want := privateKey(t)
	if got, err := ParsePrivateKey(read(t, "private-pkcs1.pem")); err != nil || !got.Equal(want) {
		t.Errorf("PKCS #1: another key, %v", err)
	}
	if got, err := ParsePublicKey(read(t, "public.pem")); err != nil || !got.Equal(&want.PublicKey) {
		t.Errorf("public: another key, %v", err)
	}
	for text, wants := range map[string]string{
		"":        "no PEM block",
		"hunter2": "no PEM block",
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": "CERTIFICATE",
		"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": "that is none",
		string(read(t, "public.pem")):                                    "PUBLIC KEY",
	} {
		_, err := ParsePrivateKey([]byte(text))
		if err == nil || !strings.Contains(err.Error(), wants) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("ParsePrivateKey(%.20q): got %v, want a word of %s", text, err, wants)
		}
	}
	if _, err := ParsePublicKey(read(t, "private.pem")); err == nil {
		t.Error("a private key was taken for a public one")
	}
}

// Nothing that somebody writes into a variable breaks the reader, and what is
// in no format is in no format for Detect and Open alike.
func FuzzOpen(f *testing.F) {
	key := privateKey(f)
	for _, name := range []string{"v0.txt", "v1.txt", "adhoc-weak.txt", "variable.txt"} {
		f.Add(string(read(f, name)))
	}
	f.Add("")
	f.Add(";")
	f.Fuzz(func(t *testing.T, text string) {
		format, formatErr := Detect(text)
		v, err := Open(key, text)
		if (formatErr != nil || format == Variable) != errors.Is(err, ErrFormat) {
			t.Errorf("Detect: %q, %v; Open: %v", format, formatErr, err)
		}
		if err != nil && !errors.Is(err, ErrFormat) && err != ErrOpen {
			t.Errorf("Open: %v", err)
		}
		if (err == nil) != (v != nil) {
			t.Errorf("Open: a value is %t, error %v", v != nil, err)
		}
	})
}
