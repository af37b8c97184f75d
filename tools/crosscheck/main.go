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
	"log"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: crosscheck SYSTEM/ARCHITECTURE,... PATTERN...")
	}
	wrong := 0
	for target := range strings.SplitSeq(os.Args[1], ",") {
		wrong += check(target, os.Args[2:])
	}
	if wrong > 0 {
		os.Exit(1)
	}
}

// check prints the errors of the packages on a system, and returns their number.
func check(target string, patterns []string) (wrong int) {
	system, architecture, _ := strings.Cut(target, "/")
	here, err := filepath.Abs(".")
	if err != nil {
		log.Fatal("crosscheck: ", err)
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
		log.Fatalf("crosscheck: %s: %v", target, err)
	}
	seen := make(map[string]bool) // a package is loaded again for its tests
	for _, p := range all {
		if strings.HasSuffix(p.ID, ".test") {
			continue // the main function of tests, which go test writes
		}
		for _, e := range p.Errors {
			if text := e.Error(); !seen[text] {
				seen[text] = true
				log.Printf("%s: %s", target, text)
				wrong++
			}
		}
	}
	fmt.Printf("%s: %d packages\n", target, len(all))
	return wrong
}

// strip removes the bodies of the functions of a file. Their types remain.
func strip(file *ast.File) {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}
