package device

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/gpu-mode/kbgen/schema"
	"github.com/gpu-mode/kbgen/schema/text"
)

// Commands to a probing process, one a line. The end of its input ends it.
const (
	tellReport = "report"
	tellStart  = "start" // begin to sample
	tellStop   = "stop"  // and stop again; answered, so that no sample is under way
)

// An answer is one line of a probing process.
type answer struct {
	PID     int                  `json:"pid,omitempty"` // of the process that answers from now on
	Report  *schema.DeviceReport `json:"report,omitempty"`
	Samples []Sample             `json:"samples,omitempty"`
	Stopped bool                 `json:"stopped,omitempty"`
	Missing bool                 `json:"missing,omitempty"` // ErrNoDriver
	Error   string               `json:"error,omitempty"`
}

// Serve is the whole work of a probing process: it loads NVIDIA's library,
// answers the commands that come in, one a line, and samples every interval
// between start and stop. It returns when in ends or out is closed.
//
// Errors: of out. A driver that does not work is an answer.
func Serve(in io.Reader, out io.Writer, interval time.Duration) error {
	r, done, err := openNVML()
	if err != nil {
		return json.NewEncoder(out).Encode(answer{Missing: errors.Is(err, ErrNoDriver), Error: text.Storable(err.Error())})
	}
	defer done()
	return serve(r, in, out, interval)
}

func serve(r reader, in io.Reader, out io.Writer, interval time.Duration) error {
	words := make(chan string)
	quit := make(chan struct{})
	defer close(quit)
	go func() { // ends with in, or with the process
		defer close(words)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			select {
			case words <- lines.Text():
			case <-quit:
				return
			}
		}
	}()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	var tick <-chan time.Time
	enc := json.NewEncoder(out)
	for {
		var a answer
		select {
		case word, ok := <-words:
			switch {
			case !ok:
				return nil
			case word == tellReport:
				a.Report = r.report()
			case word == tellStart:
				tick = ticker.C
				a.Samples = r.samples()
			case word == tellStop:
				tick = nil
				a.Samples, a.Stopped = r.samples(), true
			}
		case <-tick:
			a.Samples = r.samples()
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
}
