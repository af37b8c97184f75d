package policyfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/routelimit/limit/ops/control"
)

// defaultName is the name of a pushed file without one.
const defaultName = "policies"

// kindOfPolicies is the kind of the documents of package control.
const kindOfPolicies = "policy"

// Push puts a file in force in all programs that follow a name on a Control, within a second,
// for a time or, if that is 0, for good. It replaces their own file as a whole. The name is
// that of their [Options]; "" means "policies". by says who pushes it. A program of an older
// version that cannot read it keeps what it has, and logs that.
func Push(ctx context.Context, c *control.Control, name string, f *File, expires time.Duration, by string) error {
	value := filepath.Base(f.source.name) + "\n" + f.source.text
	if len(value) > control.MaxValue {
		return fmt.Errorf("policyfile: %s has %d bytes: a file that is pushed has less than %d with its name", f.source.name, len(f.source.text), control.MaxValue)
	}
	return c.Put(ctx, kindOfPolicies, cmp.Or(name, defaultName), []byte(value), expires, by,
		fmt.Sprintf("sha256 %s, policies %d", f.source.sum(), len(f.policies)))
}

// Withdraw ends what was pushed under a name, so that programs return to their own
// files. It returns whether there was something.
func Withdraw(ctx context.Context, c *control.Control, name, by string) (bool, error) {
	return c.Delete(ctx, kindOfPolicies, cmp.Or(name, defaultName), by)
}

// History returns the last pushed and withdrawn files, the newest first. The Note of one
// that was pushed has the [Status].Sum of the programs in which it is in force, and the
// number of its policies: "sha256 1a2b3c4d5e6f, policies 3".
func History(ctx context.Context, c *control.Control) ([]control.Change, error) {
	return c.History(ctx, kindOfPolicies)
}

// Pushed returns the files that are pushed now, by their names. The error says that Redis
// cannot be read, or joins one for each file that this version cannot read; the other
// files are then returned too.
func Pushed(ctx context.Context, c *control.Control) (map[string]*File, error) {
	documents, err := c.Read(ctx, kindOfPolicies)
	if err != nil {
		return nil, err
	}
	files, errs := make(map[string]*File), []error(nil)
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		origin, text, _ := strings.Cut(string(documents[name].Value), "\n")
		f, err := Parse(origin, []byte(text))
		if err != nil {
			errs = append(errs, fmt.Errorf("policyfile: the file that is pushed as %q: %w", name, err))
			continue
		}
		files[name] = f
	}
	return files, errors.Join(errs...)
}

// receive puts what is pushed in force.
func (p *Policies) receive(documents map[string]control.Document) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := documents[p.name]
	if !ok {
		p.problems[1] = nil
		if p.pushed.File == nil {
			return
		}
		next := cmp.Or(p.edited, p.base)
		p.pushed, p.edited = version{}, version{}
		if err := p.applyBase(next); err != nil { // check does not find all mistakes
			p.report(0, errors.Join(err, p.apply(p.base)), next)
		}
		return
	}
	name, text, _ := strings.Cut(string(d.Value), "\n")
	if p.pushed.File != nil && p.pushed.by == d.By && p.pushed.source.text == text && p.pushed.source.name == name {
		p.problems[1] = nil
		return
	}
	f, err := Parse(name, []byte(text))
	next := version{File: f, origin: "pushed " + p.name, by: d.By}
	if err == nil {
		err = p.apply(next)
	}
	if err == nil {
		p.pushed = next
	}
	p.report(1, err, next)
}
