//go:build unix

package mutate

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// A mutant is one change to one file.
type mutant struct {
	file     string // relative to the root, with slashes
	line     int
	operator string
	offset   int
	from, to string // the text that it replaces, and the new text
}

// The operators. Lua has all but the last two.
const (
	boundary   = "boundary"   // < for <=, == for !=
	negate     = "negate"     // a condition
	logic      = "logic"      // && for ||
	arithmetic = "arithmetic" // + for -, * for /
	constant   = "constant"   // n+1 for n
	remove     = "remove"     // a statement
	zero       = "zero"       // what a function returns
)

// swaps are the tokens that an operator replaces by another one.
var swaps = map[string]struct{ operator, to string }{
	"<": {boundary, "<="}, "<=": {boundary, "<"}, ">": {boundary, ">="}, ">=": {boundary, ">"},
	"==": {boundary, "!="}, "!=": {boundary, "=="}, "~=": {boundary, "=="},
	"+": {arithmetic, "-"}, "-": {arithmetic, "+"}, "*": {arithmetic, "/"}, "/": {arithmetic, "*"},
	"+=": {arithmetic, "-="}, "-=": {arithmetic, "+="}, "*=": {arithmetic, "/="}, "/=": {arithmetic, "*="},
	"%": {arithmetic, "+"}, "++": {arithmetic, "--"}, "--": {arithmetic, "++"},
	"&&": {logic, "||"}, "||": {logic, "&&"}, "and": {logic, "or"}, "or": {logic, "and"},
}

// apply returns the mutated text of its file.
func (m mutant) apply(text string) string {
	return text[:m.offset] + m.to + text[m.offset+len(m.from):]
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s: %.60q for %.60q", m.file, m.line, m.operator, m.to, m.from)
}

// noProduct names folders that are not the product, with all below them: tests, what
// only tests use, measurements and examples.
var noProduct = []string{
	"adapter/adaptertest", "benchmarks", "ops/deploy", "docs", "examples", "proof", "scripts", "stores/storetest", "tools",
	"internal/faultproxy", "internal/must", "internal/race", "internal/redistest", "internal/routetest",
}

// collect returns the mutants of the product, or of the folders in a list such as
// "core,stores/memstore".
func collect(root, in string) (mutants []mutant, err error) {
	wanted := make(map[string]bool) // whether a folder has source
	if in != "" {
		for folder := range strings.SplitSeq(in, ",") {
			wanted[folder] = false
		}
	}
	tree := os.DirFS(root)
	err = fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			hidden := name != "." && strings.HasPrefix(entry.Name(), ".")
			if hidden || entry.Name() == "testdata" || slices.Contains(noProduct, name) {
				return fs.SkipDir
			}
			return nil
		}
		generate, folder := goMutants, path.Dir(name)
		switch {
		case path.Ext(name) == ".lua":
			generate = luaMutants
		case path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		if _, ok := wanted[folder]; in != "" && !ok {
			return nil
		}
		wanted[folder] = true
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		found, err := generate(name, string(text))
		mutants = append(mutants, found...)
		return err
	})
	for folder, found := range wanted {
		if !found {
			return nil, fmt.Errorf("nothing to mutate in %q: write folders with source, such as core,stores/memstore", folder)
		}
	}
	return mutants, err
}
