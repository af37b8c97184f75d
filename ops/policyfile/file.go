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
// A file is YAML or JSON, as the end of its name says. It has at most 1 MiB.
//
//	version   1
//	lists     names of lists of entries, in the words of package access
//	exempt    entries or names of lists: clients that meet no rule
//	barred    entries or names of lists: clients that are refused with 403
//	policies  the word none, which lifts all limits but those in code, or names of policies:
//	  routes  patterns of [http.ServeMux]; without them, code attaches the policy
//	  rules   the text grammar of [limit.Parse]: a text, or a list of texts
//	  refuse  what refused requests meet, where a rule does not say so itself
//
// version and policies are required. [Schema] is for editors.
package policyfile

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

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
	exempt   clients
	barred   clients
	policies []policy
	lifts    bool           // whether it says policies: none
	mux      *http.ServeMux // of the routes
}

// A policy is one of a file.
type policy struct {
	name   string
	node   *yaml.Node // of its name
	set    limit.RuleSet
	own    limit.RuleSet // without the refuse of the policy
	rules  passage
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
		d.wrong(nil, "the file has more than %d MiB: shorten it, and put long lists of addresses into files of package access", maxFile>>20)
		return nil, d.err()
	}
	root := d.guarded(d.tree)
	if root == nil {
		return nil, d.err()
	}
	f := &File{source: d.source}
	fields := d.object(root, "the file", fileFields...)
	if d.version(root, fields["version"]) {
		lists := d.lists(fields["lists"])
		f.exempt = d.entries(fields["exempt"], "exempt", lists)
		f.barred = d.entries(fields["barred"], "barred", lists)
		d.policies(f, root, fields["policies"])
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return f, nil
}

// guarded reads a file by the parser of another library. A panic there must not end a
// program that follows a file while it serves.
func (d *decoder) guarded(parse func() *yaml.Node) (root *yaml.Node) {
	defer func() {
		if problem := recover(); problem != nil {
			root = nil
			d.wrong(nil, "the file cannot be parsed (%v): simplify it", problem)
		}
	}()
	return parse()
}

// Read reads a file from a path, which may be a symbolic link. The error is that of
// [Parse], or says why the file cannot be read.
func Read(path string) (*File, error) {
	watched := filewatch.File{Path: path, Most: maxFile}
	text, err := watched.Read()
	return fromDisk(path, text, err, rules.Functions{})
}

// fromDisk parses what was read from a path.
func fromDisk(path string, text []byte, err error, functions rules.Functions) (*File, error) {
	if err != nil {
		return nil, fmt.Errorf("policyfile: %w", err)
	}
	return parse(path, text, functions)
}

// A Policy is one of a file.
type Policy struct {
	Name   string
	Routes []string // patterns of [http.ServeMux]; none if code attaches the policy
	Rules  limit.RuleSet
}

// Policies returns the policies of the file, in its order. Sets that they are With have the
// rules of the file. To put the policies of an embedded file in force, give their Rules to
// [operate.Change].
func (f *File) Policies() []Policy {
	policies := make([]Policy, len(f.policies))
	for i, p := range f.policies {
		policies[i] = Policy{Name: p.name, Rules: p.set.Resolve(f.named)}
		for _, r := range p.routes {
			policies[i].Routes = append(policies[i].Routes, r.pattern)
		}
	}
	return policies
}

// find returns the policy of a name, or nil.
func (f *File) find(name string) *policy {
	if i := slices.IndexFunc(f.policies, func(p policy) bool { return p.name == name }); i >= 0 {
		return &f.policies[i]
	}
	return nil
}

// named returns the set of a policy, or nil.
func (f *File) named(name string) *limit.RuleSet {
	if p := f.find(name); p != nil {
		return &p.set
	}
	return nil
}

// joined returns the rules of a policy together with those of the policies that it is With,
// or none if one of them is not in the file.
func (f *File) joined(p *policy) (limit.RuleSet, error) {
	return p.set.Join(func(other limit.RuleSet) (limit.RuleSet, bool) {
		if set := f.named(other.Name()); set != nil {
			return *set, true
		}
		return other, true
	})
}

// routed returns the names of the policies that decide on routes of the file: those with
// routes, and those that they are With.
func (f *File) routed() map[string]bool {
	names := make(map[string]bool)
	var add func(p *policy)
	add = func(p *policy) {
		if p == nil || names[p.name] {
			return
		}
		names[p.name] = true
		for _, other := range p.set.Others() {
			add(f.find(other.Name()))
		}
	}
	for i := range f.policies {
		if len(f.policies[i].routes) > 0 {
			add(&f.policies[i])
		}
	}
	return names
}

// Lists returns exempt and barred, each nil if it has no entries.
func (f *File) Lists() (exempt, barred *access.List) {
	if len(f.exempt.entries) > 0 {
		exempt = f.exempt.List
	}
	if len(f.barred.entries) > 0 {
		barred = f.barred.List
	}
	return exempt, barred
}

// Lifts describes the limits of an earlier file that this one does not have: its policies
// and its routes, whatever policy they have now. Policies with other rules are not
// described.
func (f *File) Lifts(earlier *File) (lifted []string) {
	kept := make(map[string]bool) // names and patterns
	for i := range f.policies {
		kept["policy "+f.policies[i].name] = true
		for _, r := range f.policies[i].routes {
			kept["route "+r.pattern] = true
		}
	}
	for i := range earlier.policies {
		policy := &earlier.policies[i]
		if !kept["policy "+policy.name] {
			lifted = append(lifted, fmt.Sprintf("policy %s (%s)", policy.name, policy.set))
			continue
		}
		for _, r := range policy.routes {
			if !kept["route "+r.pattern] {
				lifted = append(lifted, fmt.Sprintf("route %s of policy %s", r.pattern, policy.name))
			}
		}
	}
	return lifted
}

//go:embed schema.json
var schema []byte

// Schema returns the JSON Schema of policy files, for editors and other programs. It
// admits all valid files, and some invalid ones: see [Parse].
func Schema() []byte {
	words, _ := json.Marshal("The words after the key:\n" + rules.Words() + "Instead of a rule, with NAME adds the rules of another policy.")
	return bytes.Replace(schema, []byte(`"WORDS"`), words, 1)
}
