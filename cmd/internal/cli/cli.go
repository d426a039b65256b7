// Package cli is what the commands share: flags through kong,
// variables through an injected lookup, help pages, the words of an error and the
// exit status. It knows nothing about what a command does.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Exit statuses that all commands share. A command with more of them says so
// on its help page and returns an [ExitError].
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Env is the outside world as a command sees it. Nothing below cmd reads the
// process's environment or streams by itself.
type Env struct {
	Args      []string // without the program's name
	LookupEnv func(string) (string, bool)
	Environ   func() []string // the whole environment, as "NAME=value"
	Stdin     io.Reader
	Stdout    io.Writer // the product only
	Stderr    io.Writer // everything else

	// Debug: somebody looks for a fault, and wants to read more on Stderr, see
	// [Env.Debugf]. --debug sets it.
	Debug bool
}

// Debugf says something that only --debug shows. Nothing secret goes there either.
func (e *Env) Debugf(format string, args ...any) {
	if e.Debug {
		fmt.Fprintf(e.Stderr, "debug: "+format+"\n", args...)
	}
}

// Getenv returns the variable's value, "" when it is unset.
func (e *Env) Getenv(name string) string {
	v, _ := e.LookupEnv(name)
	return v
}

// A Program is one command line tool.
//
// Grammar points at a kong struct whose leaf commands have a method
// Run(context.Context, *Env) error. A flag tagged var:"NAME" takes its value
// from that variable when it is absent from the command line; the tag's
// default comes last.
//
// Help holds the pages: "" is the program's, "submit" (or "payload decode") a
// command's. A line {options} in a page stands for the option lines of its command,
// {options decode} for those of the command's command decode. They are made from the
// flags' tags: help says what a flag does, placeholder names its value.
//
// Values says what may stand behind a flag ("--gpu") or as the argument of a
// name ("pipeline"), where the grammar lists no choices itself.
//
// Every program has three commands that are not in its grammar: help COMMAND
// prints what COMMAND --help prints, completion SHELL a script for bash, zsh or
// fish, and man the help pages for man(1). And each takes --debug, which may
// stand anywhere before "--".
type Program struct {
	Name    string
	Grammar any
	Help    map[string]string
	Values  map[string]func() []string

	// Prepare, when not nil, changes the outside world before the command line is
	// read: a configuration file beneath the environment, say.
	Prepare func(*Env) (*Env, error)

	// Usage is the exit status of wrong usage; 0 means [ExitUsage].
	Usage int

	// Failed is the exit status of an error that brings none of its own; 0 means
	// [ExitFailed].
	Failed int
}

// usage is the exit status of wrong usage.
func (p Program) usage() int { return cmp.Or(p.Usage, ExitUsage) }

// A UsageError is a command line that cannot be used: exit status 2, or the
// program's own.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef makes a [UsageError].
func Usagef(format string, args ...any) error {
	return &UsageError{Err: fmt.Errorf(format, args...)}
}

// An ExitError ends the program with its own status. Err may be nil when
// everything has been said already.
type ExitError struct {
	Status int
	Err    error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// A HintError carries one line that says what to type next.
type HintError struct {
	Err  error
	Hint string
}

func (e *HintError) Error() string { return e.Err.Error() }
func (e *HintError) Unwrap() error { return e.Err }

// WithHint attaches a hint to err; nil stays nil.
func WithHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &HintError{Err: err, Hint: fmt.Sprintf(format, args...)}
}

// exit unwinds kong's help, which offers no other way back than os.Exit.
type exit int

// Run parses env.Args, calls the selected command and returns the exit status.
func (p Program) Run(ctx context.Context, env *Env) (status int) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case exit:
			status = int(r)
		default:
			panic(r)
		}
	}()
	env = p.debug(env)
	began := time.Now()
	env.Debugf("%s %s, %s, %s/%s", p.Name, Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	defer func() {
		env.Debugf("%s ends with %d after %s", p.Name, status, time.Since(began).Round(time.Millisecond))
	}()
	if p.Prepare != nil {
		var err error
		if env, err = p.Prepare(env); err != nil {
			return p.report(env, err)
		}
	}
	if len(env.Args) == 1 && (env.Args[0] == "--version" || env.Args[0] == "version") {
		fmt.Fprintf(env.Stdout, "%s %s\n", p.Name, Version())
		return ExitDone
	}
	if len(env.Args) == 0 {
		fmt.Fprint(env.Stderr, p.Help[""])
		return p.usage()
	}
	switch env.Args[0] {
	case "help":
		args, err := p.helpFor(env.Args[1:])
		if err != nil {
			return p.report(env, err)
		}
		env.Args = args
	case "completion":
		if !slices.Contains(env.Args, "--help") {
			return p.report(env, p.completion(env.Stdout, env.Args[1:]))
		}
	case "man":
		return p.report(env, p.man(env.Stdout))
	}
	parser, err := kong.New(only(p.Grammar, env.Args[0]),
		kong.Name(p.Name),
		kong.Writers(env.Stdout, env.Stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.Help(func(_ kong.HelpOptions, kctx *kong.Context) error {
			_, err := io.WriteString(env.Stdout, p.page(kctx))
			return err
		}),
		kong.Resolvers(variables(env.LookupEnv)),
	)
	if err != nil {
		panic(fmt.Sprintf("%s: grammar: %v", p.Name, err)) // a fault of ours; every test meets it
	}
	kctx, err := parser.Parse(env.Args)
	if err != nil {
		return p.report(env, p.misused(err))
	}
	kctx.BindTo(ctx, (*context.Context)(nil))
	return p.report(env, kctx.Run(env))
}

// expected is what kong says of arguments that are missing: expected "<task>".
var expected = regexp.MustCompile(`^expected "(<.*)"`)

// misused is a command line that kong refused, with the page that says more.
func (p Program) misused(err error) error {
	page := p.Name
	if parse := new(kong.ParseError); errors.As(err, &parse) && parse.Context != nil {
		for _, path := range parse.Context.Path {
			if path.Command != nil {
				page += " " + path.Command.Name
			}
		}
	}
	if m := expected.FindStringSubmatch(err.Error()); m != nil {
		err = fmt.Errorf("missing: %s", strings.ToUpper(strings.NewReplacer("<", "", ">", "").Replace(m[1])))
	}
	return WithHint(&UsageError{Err: err}, "%s --help", page)
}

// only returns the grammar without the commands that the command line does not
// name: kong reads every flag of every command it is given, which takes longer
// than most commands. A word that names none gets the whole grammar, since the
// error lists what there is.
func only(grammar any, word string) any {
	all := reflect.ValueOf(grammar).Elem()
	var kept []reflect.StructField
	var values []reflect.Value
	found := false
	for i := range all.NumField() {
		field := all.Type().Field(i)
		if isCommand(field) {
			if name(field) != word {
				continue
			}
			found = true
		}
		kept, values = append(kept, field), append(values, all.Field(i))
	}
	if !found {
		return grammar
	}
	short := reflect.New(reflect.StructOf(kept))
	for i, v := range values {
		short.Elem().Field(i).Set(v)
	}
	return short.Interface()
}

// helpFor turns the words behind help into the command line that prints their
// page. A word that is no command is wrong usage.
func (p Program) helpFor(words []string) ([]string, error) {
	at := reflect.TypeOf(p.Grammar).Elem()
	for i, word := range words {
		sub, known := command(at, word)
		if !known && i == 0 && (word == "completion" || word == "man" || word == "help") {
			return []string{"--help"}, nil
		}
		if !known {
			return nil, WithHint(Usagef("help: %s has no command %q", strings.Join(append([]string{p.Name}, words[:i]...), " "), word), "%s --help", p.Name)
		}
		at = sub.Type
	}
	return append(slices.Clone(words), "--help"), nil
}

// page returns the most specific help page for the commands selected so far.
func (p Program) page(kctx *kong.Context) string {
	words := []string{}
	for _, path := range kctx.Path {
		if path.Command != nil {
			words = append(words, path.Command.Name)
		}
	}
	for n := len(words); n > 0; n-- {
		command := strings.Join(words[:n], " ")
		if page, ok := p.Help[command]; ok {
			return p.expand(command, page)
		}
	}
	return p.Help[""]
}

// report says what went wrong, once, and turns it into an exit status.
func (p Program) report(env *Env, err error) int {
	if err == nil {
		return ExitDone
	}
	status := cmp.Or(p.Failed, ExitFailed)
	var usage *UsageError
	if errors.As(err, &usage) || errors.Is(err, fs.ErrNotExist) && env.names(err) { // a file that was named and is not there
		status = p.usage()
	}
	if ended, ok := errors.AsType[*ExitError](err); ok {
		status = ended.Status
		if ended.Err == nil {
			return status
		}
	}
	fmt.Fprintf(env.Stderr, "%s: error: %s\n", p.Name, err)
	if hint, ok := errors.AsType[*HintError](err); ok {
		fmt.Fprintf(env.Stderr, "%s: hint: %s\n", p.Name, hint.Hint)
	}
	return status
}

// names reports whether err is about a file that stands on the command line.
func (e *Env) names(err error) bool {
	var of *fs.PathError
	return errors.As(err, &of) && slices.ContainsFunc(e.Args, func(arg string) bool {
		_, value, _ := strings.Cut(arg, "=") // --file=NAME
		return arg == of.Path || value == of.Path
	})
}

// variables resolves flags tagged var:"NAME" from the environment. Kong's own
// env tag reads os.Environ, which tests could not replace.
func variables(lookup func(string) (string, bool)) kong.Resolver {
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		for _, name := range flag.Tag.GetAll("var") {
			if v, ok := lookup(name); ok && v != "" {
				return v, nil
			}
		}
		return nil, nil
	})
}

// version is put in by a release (-ldflags -X); empty otherwise.
var version string

// Version is the version of the release, or the module's, or the commit that
// the running binary was built from.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "devel", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	return revision + dirty
}
