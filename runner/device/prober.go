package device

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpu-mode/kbgen/schema"
)

// answerLimit is the longest line of a probing process, in bytes.
const answerLimit = 1 << 20

// A prober is a probing process under way: argv runs [Serve].
type prober struct {
	stdin io.WriteCloser

	answers chan answer // of everything but samples; closed when the process is gone
	over    error       // then: why no more answers will come

	// late counts questions that were given up: their answers, which come in
	// order, may still come, and belong to no later question. Only ask uses it.
	late int

	mu   sync.Mutex
	seen counters
	self int // a descriptor of the process; 0 while it is not known

	closed bool
}

// start starts a probing process that is no child of this one: argv starts the
// real one and ends (see [Detach]). A caller that ends all of its own children
// does not end it. It ends with this process, whose descriptor it reads from.
func start(ctx context.Context, argv, environ []string) (*prober, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Args[0] = "kbrun" // whatever the file is called
	cmd.Env, cmd.Dir = environ, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the device probe: %w", err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return nil, fmt.Errorf("starting the device probe: %w", err)
	}
	cmd.Stdin, cmd.Stdout = inR, outW
	err = cmd.Run()
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		outR.Close()
		return nil, fmt.Errorf("starting the device probe %s: %w", argv[0], err)
	}
	p := &prober{stdin: inW, answers: make(chan answer, 16)}
	go p.read(outR) // ends with the probing process, or with close
	return p, nil
}

// Detach starts argv with this process's input and output, in a session of its
// own, writes its process number to the output, and leaves it running. This is
// the work of the first of the two processes of start.
func Detach(argv, environ []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Args[0] = "kbrun"
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout = environ, "/", os.Stdin, os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	err := json.NewEncoder(os.Stdout).Encode(answer{PID: cmd.Process.Pid})
	return errors.Join(err, cmd.Process.Release())
}

func (p *prober) read(out io.ReadCloser) {
	defer close(p.answers)
	defer out.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, answerLimit)
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			p.over = fmt.Errorf("the device probe answers something else: %w", err)
			return
		}
		if a.PID > 0 {
			p.know(a.PID)
		}
		if len(a.Samples) > 0 {
			p.mu.Lock()
			p.seen.add(a.Samples)
			p.mu.Unlock()
		}
		if a.Report != nil || a.Stopped || a.Error != "" {
			select {
			case p.answers <- a:
			default: // more answers than questions
			}
		}
	}
	p.over = errors.New("the device probe has ended")
}

// know opens the process, so that it can be killed when the driver does not let
// it end.
func (p *prober) know(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.self != 0 {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		unix.Close(fd)
		return
	}
	p.self = fd
}

// report asks for everything.
//
// Errors: [ErrNoDriver]; what the driver said; no answer within the limit.
func (p *prober) report(ctx context.Context, limit time.Duration) (*schema.DeviceReport, error) {
	a, err := p.ask(ctx, tellReport, limit)
	if err == nil && a.Report == nil {
		err = errors.New("the device probe answers something else")
	}
	return a.Report, err
}

// startSampling begins to sample.
func (p *prober) startSampling() {
	p.mu.Lock()
	p.seen = counters{}
	p.mu.Unlock()
	p.tell(tellStart) // when it fails, stopSampling tells
}

// stopSampling stops, and sums up what was seen since the start.
func (p *prober) stopSampling(ctx context.Context, limit time.Duration) ([]schema.Sampling, error) {
	_, err := p.ask(ctx, tellStop, limit)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.sum(), err
}

// close ends the probing process, whatever the driver does with it.
func (p *prober) close() {
	p.stdin.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.self != 0 {
		unix.PidfdSendSignal(p.self, unix.SIGKILL, nil, 0) // fails when it has ended
		unix.Close(p.self)
		p.self = 0
	}
}

func (p *prober) tell(word string) error {
	_, err := io.WriteString(p.stdin, word+"\n")
	return err
}

// ask puts a question and waits for its answer. One that does not come within
// the limit is a [noAnswer].
func (p *prober) ask(ctx context.Context, word string, limit time.Duration) (answer, error) {
	told := p.tell(word) // fails when the process has answered and gone already
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case a, ok := <-p.answers:
			switch {
			case !ok && told != nil:
				return answer{}, fmt.Errorf("%w: %w", p.over, told)
			case !ok:
				return answer{}, p.over
			case a.Missing:
				return a, ErrNoDriver
			case a.Error != "":
				return a, errors.New(a.Error)
			case p.late > 0:
				p.late--
				continue
			}
			return a, nil
		case <-timer.C:
			p.late++
			return answer{}, &noAnswer{fmt.Errorf("the driver has not answered within %s", limit)}
		case <-ctx.Done():
			p.late++
			return answer{}, &noAnswer{context.Cause(ctx)}
		}
	}
}
