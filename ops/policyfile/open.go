package policyfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/filewatch"
	"github.com/routelimit/limit/internal/notice"
	"github.com/routelimit/limit/ops/control"
	"github.com/routelimit/limit/rules"
)

// Options configures [Open]. The zero Options is ready to use.
type Options struct {
	// Control is where operators [Push] files. A pushed file replaces the file of
	// Open as a whole, on all instances, until it is deleted or ends. Nil means that
	// files are not pushed.
	Control *control.Control

	// Name is that of the pushed file. Programs of several services on one Control
	// set different ones. "" means "policies".
	Name string

	// Functions are those of the program that rules in its file can name. A pushed file cannot.
	Functions rules.Functions

	// Log receives a line for each file that is put in force, and for each that is
	// not, with the code LIMIT-206. It also receives LIMIT-117, 118 and 207: see
	// docs/diagnostics.md. Nil means [slog.Default].
	Log *slog.Logger

	// Silence lists codes of lines that are not written, such as "LIMIT-206".
	// [Policies.Status] still has the error.
	Silence []string
}

// Policies are the policies of a file that may change. Make them with [Open]. They are
// safe for concurrent use.
type Policies struct {
	lines   notice.Log
	control *control.Control
	name    string
	file    filewatch.File
	named   rules.Functions
	state   atomic.Pointer[state]
	handles atomic.Bool // whether there is a handler

	mu       sync.Mutex
	limiter  *limit.Limiter
	base     version // of the file, the last one in force
	edited   version // of the file, if it has changed since something was pushed
	pushed   version
	inForce  *File
	attached map[string]limit.RuleSet // of the policies that only routes attach, the last rules
	problems [2]error                 // of the file, and of the pushed one
	unmet    *time.Timer              // for noticeUnmet
}

// A version is a file, and where it comes from.
type version struct {
	*File
	origin, by string
}

// from returns where the version comes from, for a line of the log.
func (v version) from() []any {
	from := []any{"source", v.origin}
	if v.by != "" {
		from = append(from, "by", v.by)
	}
	return slices.Clip(from)
}

// nothingYet is a file without policies.
var (
	nothingYet = &File{source: newSource("none.yaml", ""), mux: http.NewServeMux(), exempt: nobody, barred: nobody}
	nobody     = new(decoder).entries(nil, "", nil)
)

// Open reads a file, whose lists [Policies.Exempt] and [Policies.Bar] then use. The error is that
// of [Read], or about the Functions. An empty path means that there is no file, only what is
// pushed. Options may be nil.
func Open(path string, options *Options) (*Policies, error) {
	o := cmp.Or(options, new(Options))
	if path == "" && o.Control == nil {
		return nil, errors.New("policyfile: no file and no Control: write the path of a file")
	}
	if err := o.Functions.Validate(); err != nil {
		return nil, err
	}
	p := &Policies{lines: notice.Log{To: o.Log, Silenced: o.Silence}, control: o.Control, name: cmp.Or(o.Name, defaultName),
		inForce: nothingYet, attached: make(map[string]limit.RuleSet), named: o.Functions,
		file: filewatch.File{Path: path, Most: maxFile}, base: version{File: nothingYet, origin: "no file"}}
	if path != "" {
		text, err := p.file.Read()
		f, err := fromDisk(path, text, err, p.named)
		if err != nil {
			return nil, err
		}
		p.base = version{File: f, origin: path}
	}
	p.state.Store(prepare(p.base, nil))
	return p, nil
}

// Exempt reports whether an entry of exempt matches the client of a request. It is for
// [limit.Options].Exempt.
func (p *Policies) Exempt(c limit.Client) bool { return p.state.Load().exempt.Matches(c) }

// Bar returns [limit.Never] if an entry of barred matches the client of a request, and 0
// otherwise. It is for [limit.Options].Bar.
func (p *Policies) Bar(c limit.Client) time.Duration { return p.state.Load().barred.Bar(c) }

// A Status says what is in force in this process.
type Status struct {
	Source string    // the path of the file, or the name of the pushed one
	Sum    string    // the first 12 hexadecimal digits of the SHA-256 of its text
	By     string    // who pushed it; "" for a file
	Since  time.Time // when it was put in force

	// Unmet lists the routes that no request has matched so far, in this process: new
	// ones, rare ones, and those with a mistake.
	Unmet []string

	// Err says why the file, or what was pushed last, is not in force. It is nil if
	// there is nothing wrong.
	Err error
}

// Status returns what is in force.
func (p *Policies) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state.Load()
	return Status{Source: s.origin, Sum: s.source.sum(), By: s.by, Since: s.since, Unmet: s.unmet(), Err: errors.Join(p.problems[:]...)}
}

// unmet returns the routes that no request has matched, in the order of the file.
func (s *state) unmet() (patterns []string) {
	for i := range s.policies {
		for _, r := range s.policies[i].routes {
			if !s.targets[r.pattern].met.Load() {
				patterns = append(patterns, r.pattern)
			}
		}
	}
	return patterns
}

// unmetAfter is how long routes may meet no request before a line says so.
const unmetAfter = time.Hour

// noticeUnmet warns about the routes of a state that no request has met, if it is still
// in force and there were requests, or no handler that could have any.
func (p *Policies) noticeUnmet(s *state) {
	if patterns := s.unmet(); p.state.Load() == s && len(patterns) > 0 && (s.served.Load() || !p.handles.Load()) {
		notice.Write(&p.lines, notice.UnmetRoutes, "policyfile: no request has matched some routes so far, so their policies limit nothing: "+
			"compare them with the paths of requests, and put Policies.Handler before your router", 0,
			"source", s.origin, "routes", listed(patterns), "after", unmetAfter)
	}
}

// Follow puts the policies in force on a limiter, and follows the file and what is
// pushed until ctx ends. The limiter should have [Policies.Exempt] and [Policies.Bar] in
// its Options; lists compare the user and the address that its rules use. Call Follow
// once, after the program has declared the policies that the file may override: see
// Overridable of [limit.RuleSet].
//
// The error is about the file: it may change only policies that the program has not
// declared, or has declared Overridable, and a rule by user needs the User of the
// limiter. Later, a file that is missing, invalid or half written changes nothing and is
// logged once; so is a pushed one. A change is in force within about a second.
//
// All rules change at once, then the lists, and then the routes, microseconds later.
// Requests that have begun end under the rules that they began with.
func (p *Policies) Follow(ctx context.Context, limiter *limit.Limiter) error {
	p.mu.Lock()
	if p.limiter != nil {
		p.mu.Unlock()
		return errors.New("policyfile: Follow was called before: open the file again for another limiter")
	}
	p.limiter = limiter
	err := p.apply(p.base)
	if err != nil {
		p.limiter = nil
	}
	p.mu.Unlock()
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.unmet.Stop()
	})
	if p.control != nil {
		if err := p.control.Watch(ctx, kindOfPolicies, p.receive); err != nil {
			return err
		}
	}
	if p.file.Path != "" {
		go p.file.Follow(ctx, p.look)
	}
	return nil
}

// look puts the file in force, which has changed or cannot be read.
func (p *Policies) look(text []byte, err error) {
	f, err := fromDisk(p.file.Path, text, err, p.named)
	next := version{File: f, origin: p.file.Path}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err != nil:
	case p.pushed.File == nil:
		err = p.applyBase(next)
	default:
		if err = p.check(next); err == nil {
			p.edited = next
			p.log().Info("policyfile: the file has changed: what was pushed stays in force until it ends", "source", next.origin)
		}
	}
	p.report(0, err, next)
}

// maxLogged bounds the lines about one file.
const maxLogged = 10

// report keeps an error, or that there is none, and logs it unless the last one was the
// same: a line for each mistake.
func (p *Policies) report(which int, err error, of version) {
	before := p.problems[which]
	p.problems[which] = err
	if err == nil || before != nil && before.Error() == err.Error() {
		return
	}
	all := slices.DeleteFunc(strings.Split(err.Error(), "\n"), func(line string) bool { return strings.HasPrefix(line, "\t") }) // without excerpts
	for i, line := range all[:min(len(all), maxLogged)] {
		notice.Write(&p.lines, notice.InvalidPolicies, "policyfile: a file was rejected: the previous policies stay in force", 0,
			append(of.from(), "mistake", fmt.Sprintf("%d of %d", i+1, len(all)), "error", line)...)
	}
}

func (p *Policies) log() *slog.Logger {
	return cmp.Or(p.lines.To, slog.Default()) // as it is now
}
