// Command measure prints the size of a checkout of this repository, to compare it
// before and after a change:
//
//	measure DIR
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// long is the number of lines above which a function counts as long.
const long = 60

// sizes is what measure counts. Root is the package at the top, without its tests.
type sizes struct {
	identifiers, names, rootFiles, rootLines int
	folders                                  map[string]bool
	modules, lines, testLines, words         int
	longFunctions, largest                   int
	largestName                              string
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: measure DIR")
	}
	dir := os.Args[1]
	s := sizes{folders: make(map[string]bool)}
	for path := range strings.SplitSeq(run(dir, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"), "\x00") {
		text, err := os.ReadFile(filepath.Join(dir, path))
		if path != "" && err == nil { // a deleted file is still listed
			s.add(path, text)
		}
	}
	doc := bytes.Count([]byte(run(dir, "go", "doc", "-all", ".")), []byte("\n"))
	for _, row := range []struct {
		what  string
		value any
	}{
		{"root: exported functions, types and methods", s.names},
		{"root: with constants, variables and fields", s.identifiers},
		{"root: files", s.rootFiles},
		{"root: lines", s.rootLines},
		{"lines of go doc -all .", doc},
		{"folders at the top", len(s.folders)},
		{"modules", s.modules},
		{"Go lines outside of tests", s.lines},
		{"Go lines in tests", s.testLines},
		{"words of Markdown without the changelog", s.words},
		{fmt.Sprintf("functions above %d lines outside of tests", long), s.longFunctions},
		{"lines of the largest, " + s.largestName, s.largest},
	} {
		fmt.Printf("| %s | %v |\n", row.what, row.value)
	}
}

func run(dir, name string, args ...string) string {
	command := exec.Command(name, args...)
	command.Dir, command.Stderr = dir, os.Stderr
	out, err := command.Output()
	if err != nil {
		log.Fatalf("measure: %s %s: %v", name, args[0], err)
	}
	return string(out)
}

// add counts a file. Its path has slashes.
func (s *sizes) add(path string, text []byte) {
	top, _, below := strings.Cut(path, "/")
	if below && !strings.HasPrefix(top, ".") {
		s.folders[top] = true
	}
	lines := bytes.Count(text, []byte("\n"))
	switch {
	case strings.HasSuffix(path, "go.mod"):
		s.modules++
	case strings.HasSuffix(path, ".md") && path != "CHANGELOG.md":
		s.words += len(bytes.Fields(text))
	case strings.HasSuffix(path, "_test.go"):
		s.testLines += lines
	case strings.HasSuffix(path, ".go"):
		s.lines += lines
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
		if err != nil {
			log.Fatal("measure: ", err)
		}
		if !below {
			s.rootFiles++
			s.rootLines += lines
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				s.addFunction(path, f.Name.Name, set.Position(f.End()).Line-set.Position(f.Pos()).Line+1)
			}
			if !below {
				s.addExported(decl)
			}
		}
	}
}

func (s *sizes) addFunction(path, name string, lines int) {
	if lines > long {
		s.longFunctions++
	}
	if lines > s.largest {
		s.largest, s.largestName = lines, path+" "+name
	}
}

// addExported counts what a declaration exports.
func (s *sizes) addExported(decl ast.Decl) {
	names, others := 0, 0
	count := func(of *int, names ...*ast.Ident) {
		for _, name := range names {
			if name.IsExported() {
				*of++
			}
		}
	}
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil || ast.IsExported(receiver(decl.Recv.List[0].Type)) {
			count(&names, decl.Name)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				count(&others, spec.Names...)
			case *ast.TypeSpec:
				count(&names, spec.Name)
				if fields, ok := spec.Type.(*ast.StructType); ok && spec.Name.IsExported() {
					for _, field := range fields.Fields.List {
						count(&others, field.Names...)
					}
				}
			}
		}
	}
	s.names += names
	s.identifiers += names + others
}

// receiver returns the name of a method's type.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	}
	return t.(*ast.Ident).Name
}
