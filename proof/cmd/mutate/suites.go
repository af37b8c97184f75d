//go:build unix

package main

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A suite is a folder of source and the packages that test it.
type suite struct {
	folder string
	tests  []string
}

// judges names the packages that test a folder, if they are not just its own.
var judges = map[string][]string{
	".":                         {".", "./ginlimit", "./echolimit"},
	"core":                      {"./core", "./stores/memstore", "./stores/refusals", "./stores/guard"},
	"lua":                       {"./lua", "./stores/redisstore"},
	"stores/memstore":           {"./stores/memstore", "./stores/guard"},
	"adapter/rpc/grpclimit":     {"./adapter/rpc"},
	"adapter/rpc/connectlimit":  {"./adapter/rpc"},
	"adapter/rpc/internal/flow": {"./adapter/rpc"},
	"internal/echoflow":         {"./echolimit", "./adapter/echov5limit"},
	"internal/filewatch":        {"./ops/access", "./ops/policyfile"},
	"internal/logbook":          {".", "./stores/guard"},
	"internal/redisfacts":       {"./stores/redisstore", "./cmd/limitctl/internal/doctor"},
}

// noProduct names folders that are not the product, with all below them: tests, what
// only tests use, measurements and examples.
var noProduct = []string{
	"adapter/adaptertest", "benchmarks", "ops/deploy", "docs", "examples", "proof", "scripts", "stores/storetest", "tools",
	"internal/faultproxy", "internal/race", "internal/redistest", "internal/routetest",
}

// suitesOf returns the suites of a tree, in the order of their folders: all folders of
// the product that have source, or those in a list such as "core,stores/memstore".
func suitesOf(root, in string) ([]*suite, error) {
	found := make(map[string]*suite)
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if hidden := name != "." && strings.HasPrefix(entry.Name(), "."); hidden || entry.Name() == "testdata" || slices.Contains(noProduct, name) {
				return filepath.SkipDir
			}
			return nil
		}
		if folder := path.Dir(name); isSource(name) && found[folder] == nil {
			s := &suite{folder, judges[folder]}
			if s.tests == nil {
				s.tests = []string{"./" + folder}
			}
			found[folder] = s
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	folders := slices.Sorted(maps.Keys(found))
	if in != "" {
		folders = strings.Split(in, ",")
	}
	var suites []*suite
	for _, folder := range folders {
		s := found[folder]
		if s == nil {
			return nil, fmt.Errorf("there is nothing to mutate in %q: write some of %s", folder, strings.Join(slices.Sorted(maps.Keys(found)), ","))
		}
		suites = append(suites, s)
	}
	return suites, nil
}

func isSource(name string) bool {
	extension := path.Ext(name)
	return extension == ".lua" || extension == ".go" && !strings.HasSuffix(name, "_test.go")
}

// equivalent names mutants that no test can kill, since they change how much
// time or memory something takes and not what it decides. It leaves out every
// mutant of one operator in one function, so that edits of the function need no
// edit here.
var equivalent = []struct {
	folder, function, operator string
	why                        string
}{
	{"core", "(*returns).until", Constant, "refunds are remembered for a microsecond longer"},
	{"lua", "values_of", Boundary, "it looks for keys of another type although none is missing"},
	{"stores/memstore", "(*table).join", Constant, "the table shrinks sooner or later"},
	{"stores/memstore", "(*table).sweep", Constant, "the table shrinks sooner or later"},
	{"stores/memstore", "hasRoom", Constant, "a full table looks at fewer expired keys"},
}
