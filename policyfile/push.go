package policyfile

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/routelimit/limit/control"
)

// DefaultName is the Name of [Options] that set none.
const DefaultName = "policies"

// kindOfPolicies is the kind of the documents of package control.
const kindOfPolicies = "policy"

// Push puts a file in force in all programs that follow its name on a Control, usually
// within milliseconds and at most a second, for a time or, if that is 0, for good. It
// replaces their own file as a whole. by says who pushes it. A program of an older
// version that cannot read it keeps what it has, and logs that.
func Push(ctx context.Context, c *control.Control, name string, f *File, expires time.Duration, by string) error {
	value := filepath.Base(f.source.name) + "\n" + f.source.text
	if len(value) > control.MaxValue {
		return fmt.Errorf("policyfile: %s has %d bytes: a file that is pushed has less than %d with its name", f.source.name, len(f.source.text), control.MaxValue)
	}
	return c.Put(ctx, kindOfPolicies, name, []byte(value), expires, by)
}

// Withdraw ends what was pushed under a name, so that programs return to their own
// files. It returns whether there was something.
func Withdraw(ctx context.Context, c *control.Control, name, by string) (bool, error) {
	return c.Delete(ctx, kindOfPolicies, name, by)
}

// History returns the last pushed and withdrawn files, the newest first.
func History(ctx context.Context, c *control.Control) ([]control.Change, error) {
	return c.History(ctx, kindOfPolicies)
}

// receive puts what is pushed in force.
func (p *Policies) receive(documents map[string]control.Document) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := documents[p.name]
	source := "pushed " + p.name
	if !ok {
		if p.pushed.File == nil {
			p.problems[1] = nil
			return
		}
		p.pushed = version{} // so that the file counts again, even if it must change first
		p.problems[1] = nil
		p.report(0, p.apply(p.base), p.base.origin, "")
		return
	}
	name, text, _ := strings.Cut(string(d.Value), "\n")
	if p.pushed.File != nil && p.pushed.by == d.By && p.pushed.source.text == text && p.pushed.source.name == name {
		p.problems[1] = nil
		return
	}
	f, err := Parse(name, []byte(text))
	if err == nil {
		next := version{File: f, origin: source, by: d.By}
		if err = p.apply(next); err == nil {
			p.pushed = next
		}
	}
	p.report(1, err, source, d.By)
}
