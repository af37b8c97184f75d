//go:build unix

package main

import "github.com/routelimit/limit/proof/internal/mutate"

// A suite is a folder of source and the packages that test it.
type suite struct {
	folder string
	tests  []string
}

var suites = []suite{
	{"core", []string{"./core", "./memstore", "./refusals"}},
	{"lua", []string{"./lua", "./redisstore"}},
	{"memstore", []string{"./memstore", "./guard"}},
	{"redisstore", []string{"./redisstore"}},
	{"guard", []string{"./guard"}},
	{"refusals", []string{"./refusals"}},
	{"topkeys", []string{"./topkeys"}},
	{".", []string{".", "./ginlimit", "./echolimit"}},
}

// equivalent names mutants that no test can kill, since they change how much
// time or memory something takes and not what it decides. It leaves out every
// mutant of one operator in one function, so that edits of the function need no
// edit here.
var equivalent = []struct {
	folder, function, operator string
	why                        string
}{
	{"core", "(*returns).until", mutate.Constant, "refunds are remembered for a microsecond longer"},
	{"lua", "values_of", mutate.Boundary, "it looks for keys of another type although none is missing"},
	{"memstore", "(*table).join", mutate.Constant, "the table shrinks sooner or later"},
	{"memstore", "(*table).sweep", mutate.Constant, "the table shrinks sooner or later"},
	{"memstore", "hasRoom", mutate.Constant, "a full table looks at fewer expired keys"},
}
