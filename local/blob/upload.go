package blob

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"

	"github.com/gpu-mode/kbgen/local/engine"
)

// maxField bounds one form field before the file, and maxFields their number.
const (
	maxField  = 64 << 10
	maxFields = 50
)

// uploadForm takes multipart/form-data whose last part is the file.
func (s *Store) uploadForm(w http.ResponseWriter, r *http.Request) error {
	a, err := s.target(r)
	if err != nil {
		return err
	}
	if err := s.readForm(a, r); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Store) readForm(a engine.Artifact, r *http.Request) error {
	form, err := r.MultipartReader()
	if err != nil {
		return wrong("want multipart/form-data: %v", err)
	}
	for range maxFields {
		part, err := form.NextPart()
		switch {
		case errors.Is(err, io.EOF):
			return wrong("the form has no field %q", FileField)
		case err != nil:
			return wrong("reading the form: %v", err)
		case part.FormName() == FileField:
			return s.keep(a, part, form)
		}
		if n, err := io.Copy(io.Discard, io.LimitReader(part, maxField+1)); err != nil || n > maxField {
			return wrong("form field %q: want at most %d bytes", part.FormName(), maxField)
		}
	}
	return wrong("the form has more than %d fields", maxFields)
}

// target finds the artifact a signed link names; it must be new.
func (s *Store) target(r *http.Request) (engine.Artifact, error) {
	id := r.PathValue("id")
	if !s.signed(r.PathValue("signature"), "upload", id) {
		return engine.Artifact{}, engine.Refuse(http.StatusForbidden, "the signature of this link is wrong")
	}
	a, err := s.engine.Artifact(id)
	if err == nil && a.State != engine.ArtifactNew {
		err = engine.Refuse(http.StatusConflict, "the artifact is %s and takes no upload", a.State)
	}
	return a, err
}

// keep writes the bytes next to their final place and moves them there when size
// and hashes are as they should be, and the form ends with them.
func (s *Store) keep(a engine.Artifact, from io.Reader, form *multipart.Reader) (err error) {
	final := s.engine.ArtifactFile(a.ID)
	f, err := os.CreateTemp(filepath.Dir(final), ".upload-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	sum1, sum256 := sha1.New(), sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum1, sum256), io.LimitReader(from, a.Size+1))
	if err != nil {
		if _, ok := errors.AsType[*os.PathError](err); ok {
			return err // of our disk
		}
		return wrong("reading the bytes: %v", err)
	}
	switch got1, got256 := hex.EncodeToString(sum1.Sum(nil)), hex.EncodeToString(sum256.Sum(nil)); {
	case n > a.Size:
		return wrong("got more than the %d bytes that were announced", a.Size)
	case n < a.Size:
		return wrong("got %d bytes, want the %d that were announced", n, a.Size)
	case a.SHA1 != "" && got1 != a.SHA1:
		return wrong("got SHA-1 %s, want %s as announced", got1, a.SHA1)
	case a.SHA256 != "" && got256 != a.SHA256:
		return wrong("got SHA-256 %s, want %s as announced", got256, a.SHA256)
	}
	if _, err := form.NextPart(); !errors.Is(err, io.EOF) {
		return wrong("the field %q must be the last of the form", FileField)
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), final)
}
