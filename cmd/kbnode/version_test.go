package main

import (
	"bytes"
	"fmt"
	"os"

	"aead.dev/minisign"

	"github.com/gpu-mode/kbgen/node/apply"
)

// signRelease writes the sums of a release whose kbnode is this program, and their
// signature. Its public key is always the same.
func signRelease() {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	sum, err := apply.HashFile(self)
	if err != nil {
		panic(err)
	}
	_, key, err := minisign.GenerateKey(bytes.NewReader(make([]byte, 64)))
	if err != nil {
		panic(err)
	}
	list := []byte(fmt.Sprintf("%s  kbgen_1.2.3_linux_amd64/bin/kbnode\n%064d  kbgen_1.2.3_linux_amd64/bin/kbrun\n", sum, 0))
	if err := os.WriteFile("SHA256SUMS", list, 0o644); err != nil {
		panic(err)
	}
	if err := os.WriteFile("SHA256SUMS.minisig", minisign.SignWithComments(key, list, "file:SHA256SUMS\tkbgen v1.2.3", "any"), 0o644); err != nil {
		panic(err)
	}
	fmt.Println(key.Public())
}
