// Command crosscheck type-checks packages and their tests for other systems, from
// source. To build them would compile the standard library for each, which takes
// ten times as long and finds no more in a module without assembly and cgo.
//
//	crosscheck SYSTEM/ARCHITECTURE,... PATTERN...
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: crosscheck SYSTEM/ARCHITECTURE,... PATTERN...")
		os.Exit(2)
	}
	wrong := 0
	for _, target := range strings.Split(os.Args[1], ",") {
		found, err := check(target, os.Args[2:])
		if err != nil {
			fmt.Fprintf(os.Stderr, "crosscheck: %s: %v\n", target, err)
			os.Exit(1)
		}
		wrong += found
	}
	if wrong > 0 {
		os.Exit(1)
	}
}

// check prints the errors of the packages on a system, and returns their number.
func check(target string, patterns []string) (wrong int, err error) {
	system, architecture, ok := strings.Cut(target, "/")
	if !ok {
		return 0, fmt.Errorf("not of the form linux/386")
	}
	here, err := filepath.Abs(".")
	if err != nil {
		return 0, err
	}
	all, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedDeps | packages.NeedTypes | packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedTypesInfo,
		Env:   append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0"),
		Tests: true,
		ParseFile: func(set *token.FileSet, name string, text []byte) (*ast.File, error) {
			file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
			if file != nil && !strings.HasPrefix(name, here+string(filepath.Separator)) {
				strip(file) // what others have written
			}
			return file, err
		},
	}, patterns...)
	if err != nil {
		return 0, err
	}
	seen := make(map[string]bool) // a package is loaded again for its tests
	for _, p := range all {
		if strings.HasSuffix(p.ID, ".test") {
			continue // the main function of tests, which go test writes
		}
		for _, e := range p.Errors {
			if text := e.Error(); !seen[text] {
				seen[text] = true
				fmt.Fprintf(os.Stderr, "%s: %s\n", target, text)
				wrong++
			}
		}
	}
	fmt.Printf("%s: %d packages\n", target, len(all))
	return wrong, nil
}

// strip removes the bodies of the functions of a file. Their types remain.
func strip(file *ast.File) {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}
