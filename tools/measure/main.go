// Command measure prints the size of a checkout of this repository, to compare it
// before and after a change:
//
//	measure DIR
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// long is the number of lines above which a function counts as long.
const long = 60

type row struct {
	what  string
	value int
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: measure DIR")
	}
	var modules, lines, testLines, words, rootLines, longFunctions int
	var largest function
	folders := make(map[string]bool)
	set := token.NewFileSet()
	var root []*ast.File // the package at the top, without its tests
	for path, text := range files(os.Args[1]) {
		top, _, below := strings.Cut(path, "/")
		if below && !strings.HasPrefix(top, ".") {
			folders[top] = true
		}
		count := bytes.Count(text, []byte("\n"))
		switch {
		case strings.HasSuffix(path, "go.mod"):
			modules++
		case strings.HasSuffix(path, ".md") && path != "CHANGELOG.md":
			words += len(bytes.Fields(text))
		case strings.HasSuffix(path, "_test.go"):
			testLines += count
		case strings.HasSuffix(path, ".go"):
			lines += count
			file, err := parser.ParseFile(set, path, text, parser.ParseComments)
			if err != nil {
				log.Fatal("measure: ", err)
			}
			if !below {
				root, rootLines = append(root, file), rootLines+count
			}
			for _, f := range functions(set, file) {
				if f.lines > long {
					longFunctions++
				}
				if f.lines > largest.lines {
					largest = function{path + " " + f.name, f.lines}
				}
			}
		}
	}
	names, values := exported(set, root)
	for _, row := range []row{
		{"root: exported functions, types and methods", names},
		{"root: with constants, variables and fields", names + values},
		{"root: files", len(root)},
		{"root: lines", rootLines},
		{"lines of go doc -all .", strings.Count(run(os.Args[1], "go", "doc", "-all", "."), "\n")},
		{"folders at the top", len(folders)},
		{"modules", modules},
		{"Go lines outside of tests", lines},
		{"Go lines in tests", testLines},
		{"words of Markdown without the changelog", words},
		{fmt.Sprintf("functions above %d lines outside of tests", long), longFunctions},
		{"lines of the largest, " + largest.name, largest.lines},
	} {
		fmt.Printf("| %s | %d |\n", row.what, row.value)
	}
}

// files returns the paths in a checkout, with slashes, and their texts.
func files(dir string) map[string][]byte {
	all := make(map[string][]byte)
	listed := run(dir, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	for path := range strings.SplitSeq(strings.TrimSuffix(listed, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(dir, path))
		if err == nil { // a deleted file is still listed
			all[path] = text
		}
	}
	return all
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

type function struct {
	name  string
	lines int
}

func functions(set *token.FileSet, file *ast.File) (all []function) {
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			all = append(all, function{f.Name.Name, set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1})
		}
	}
	return all
}

// exported counts what a package exports: functions, types and methods, and constants,
// variables and fields.
func exported(set *token.FileSet, files []*ast.File) (names, values int) {
	p, err := doc.NewFromFiles(set, files, "limit")
	if err != nil {
		log.Fatal("measure: ", err)
	}
	names = len(p.Funcs)
	groups := slices.Concat(p.Consts, p.Vars)
	for _, t := range p.Types {
		names += 1 + len(t.Funcs) + len(t.Methods)
		groups = slices.Concat(groups, t.Consts, t.Vars)
		if fields, ok := t.Decl.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType); ok {
			for _, field := range fields.Fields.List {
				values += len(field.Names)
			}
		}
	}
	for _, group := range groups {
		for _, name := range group.Names {
			if ast.IsExported(name) {
				values++
			}
		}
	}
	return names, values
}
