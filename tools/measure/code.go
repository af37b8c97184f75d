package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strings"
)

// names are the exported names of a package.
type names struct {
	types, functions, methods, values int
}

func (n names) total() int { return n.types + n.functions + n.methods }

// printExported prints the number of exported names of each package that another
// module may import.
func printExported(files []file) error {
	packages := map[string]names{}
	for _, f := range files {
		dir := path.Dir(f.path)
		if !strings.HasSuffix(f.path, ".go") || slices.Contains(strings.Split(dir, "/"), "internal") {
			continue
		}
		syntax, err := parse(f)
		if err != nil {
			return err
		}
		if syntax.Name.Name == "main" { // nothing can import it
			continue
		}
		n := packages[dir]
		for _, decl := range syntax.Decls {
			n.add(decl)
		}
		packages[dir] = n
	}
	fmt.Printf("Exported names\n total  types  functions  methods  (constants and variables)\n")
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		n := packages[dir]
		fmt.Printf("%6d %6d %10d %8d  (%d)  %s\n", n.total(), n.types, n.functions, n.methods, n.values, dir)
	}
	return nil
}

// add counts what a declaration exports. A method counts if its type is
// exported too.
func (n *names) add(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		switch {
		case !decl.Name.IsExported():
		case decl.Recv == nil:
			n.functions++
		case ast.IsExported(receiver(decl.Recv.List[0].Type)):
			n.methods++
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() {
					n.types++
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() {
						n.values++
					}
				}
			}
		}
	}
}

// receiver returns the name of a method's type.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// printCharges prints through how many calls package guard passes its charges.
func printCharges(files []file, verbose bool) error {
	calls, in := 0, map[string]int{}
	for _, f := range files {
		if path.Dir(f.path) != "guard" || !strings.HasSuffix(f.path, ".go") {
			continue
		}
		syntax, err := parse(f)
		if err != nil {
			return err
		}
		ast.Inspect(syntax, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if to, ok := call.Fun.(*ast.Ident); ok && slices.Contains([]string{"append", "cap", "clear", "copy", "len"}, to.Name) {
				return true
			}
			if slices.ContainsFunc(call.Args, func(arg ast.Expr) bool {
				name, ok := arg.(*ast.Ident)
				return ok && name.Name == "charges"
			}) {
				calls++
				in[f.path]++
			}
			return true
		})
	}
	fmt.Printf("\n%d calls with an argument named charges, in %d files of package guard\n", calls, len(in))
	if verbose {
		for _, name := range slices.Sorted(maps.Keys(in)) {
			fmt.Printf("\t%5d  %s\n", in[name], name)
		}
	}
	return nil
}

func parse(f file) (*ast.File, error) {
	return parser.ParseFile(token.NewFileSet(), f.path, f.text, parser.SkipObjectResolution)
}
