// Package policyfile reads policies from files, and follows the files while the program
// runs:
//
//	version: 1
//	lists:
//	  office: ["10.0.0.0/8", "user root"]
//	exempt: [office]
//	policies:
//	  login:
//	    routes: ["POST /login"]
//	    rules: "5/1m per ip; 20/1h per user on-error refuse"
//	    refuse: wait 2s
//
// [Open] reads a file, [Policies.Follow] puts its policies in force and follows the file
// and, with [Options].Control, what operators push through Redis, and
// [Policies.Handler] limits the routes that the policies name. A file with a mistake
// changes nothing. docs/policy-files.md is the guide.
//
// # Format
//
// A file is YAML, JSON or TOML, as the end of its name says. It has at most 1 MiB.
//
//	version   1
//	lists     names of lists of entries, in the words of package access
//	exempt    entries or names of lists: clients that meet no rule
//	barred    entries or names of lists: clients that are refused with 403
//	policies  the word none, or names of policies:
//	  routes  patterns of [http.ServeMux]; without them, code attaches the policy
//	  rules   the text grammar of [limit.Parse]: a text, or a list of texts
//	  refuse  what refused requests meet, where a rule does not say so itself
//
// version and policies are required. [Schema] is for editors.
package policyfile

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/internal/filewatch"
	"github.com/routelimit/limit/ops/access"
	"github.com/routelimit/limit/rules"
)

// formatVersion is that of the format that this package reads.
const formatVersion = 1

// A File is the content of a valid policy file. It does not change.
type File struct {
	source   *source
	lists    map[string]*named
	exempt   []entry
	barred   []entry
	policies []policy
	mux      *http.ServeMux // of the routes
}

// A policy is one of a file.
type policy struct {
	name   string
	at     int
	set    limit.RuleSet
	own    limit.RuleSet // without the refuse of the policy
	rules  *passage
	routes []route
}

var (
	fileFields   = []string{"version", "lists", "exempt", "barred", "policies"}
	policyFields = []string{"routes", "rules", "refuse"}
)

// Parse reads a file. The name says the format, and begins each error. The error joins
// one [*Error] for each mistake.
func Parse(name string, data []byte) (*File, error) { return parse(name, data, rules.Functions{}) }

func parse(name string, data []byte, functions rules.Functions) (*File, error) {
	d := decoder{functions: functions, source: newSource(name, strings.TrimPrefix(string(data[:min(len(data), maxFile)]), "\ufeff"))}
	if len(data) > maxFile {
		d.wrongf(0, "the file has more than %d MiB: shorten it, and put long lists of addresses into files of package access", maxFile>>20)
		return nil, d.err()
	}
	root := d.guarded(d.tree)
	if root == nil {
		return nil, d.err()
	}
	f := &File{source: d.source}
	fields := d.object(root, "the file", fileFields...)
	if d.version(root, fields) {
		f.lists = d.lists(fields["lists"].value)
		f.exempt = d.entries(fields["exempt"].value, "exempt", f.lists)
		f.barred = d.entries(fields["barred"].value, "barred", f.lists)
		d.policies(f, root, fields)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return f, nil
}

// guarded reads a file by the parsers of other libraries. A panic there must not end a
// program that follows a file while it serves.
func (d *decoder) guarded(parse func() *node) (root *node) {
	defer func() {
		if problem := recover(); problem != nil {
			root = nil
			d.wrongf(0, "the file cannot be parsed (%v): simplify it", problem)
		}
	}()
	return parse()
}

// Read reads a file from a path, which may be a symbolic link. The error is that of
// [Parse], or says why the file cannot be read.
func Read(path string) (*File, error) { return read(&filewatch.File{Path: path}, rules.Functions{}) }

func read(watched *filewatch.File, functions rules.Functions) (f *File, err error) {
	var invalid error
	err = watched.Read(func(text io.Reader, size int64) error {
		if size > maxFile {
			invalid = fmt.Errorf("%s:1:1: the file has %d bytes: write at most %d MiB", watched.Path, size, maxFile>>20)
			return invalid
		}
		data, err := io.ReadAll(io.LimitReader(text, maxFile+1))
		if err != nil {
			return err
		}
		f, invalid = parse(watched.Path, data, functions)
		return invalid
	})
	switch {
	case err == nil:
		return f, nil
	case invalid != nil && !errors.Is(err, filewatch.ErrWritten):
		return nil, invalid
	}
	return nil, fmt.Errorf("policyfile: %w", err)
}

// Sets returns the policies of the file, for [operate.Change]: those of a file that
// is embedded in the program, for example.
func (f *File) Sets() []limit.RuleSet {
	sets := make([]limit.RuleSet, len(f.policies))
	for i, p := range f.policies {
		sets[i] = p.set
	}
	return sets
}

// A Policy is one of a file.
type Policy struct {
	Name   string
	Routes []string // patterns of [http.ServeMux]; none if code attaches the policy
	Rules  limit.RuleSet
}

// Policies returns the policies of the file, in its order.
func (f *File) Policies() []Policy {
	policies := make([]Policy, len(f.policies))
	for i, p := range f.policies {
		policies[i] = Policy{Name: p.name, Rules: p.set}
		for _, r := range p.routes {
			policies[i].Routes = append(policies[i].Routes, r.pattern)
		}
	}
	return policies
}

// Lists returns exempt and barred, each nil if it has no entries.
func (f *File) Lists() (exempt, barred *access.List) {
	d := decoder{source: f.source} // the entries are valid
	if len(f.exempt) > 0 {
		exempt = d.build(f.exempt)
	}
	if len(f.barred) > 0 {
		barred = d.build(f.barred)
	}
	return exempt, barred
}
