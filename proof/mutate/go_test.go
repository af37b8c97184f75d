//go:build unix

package mutate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// goMutants returns every mutant of a Go file. Some of them do not compile, since types
// are not looked at: without a statement a variable may be unused.
func goMutants(file, text string) ([]mutant, error) {
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	g := generator{file: file, text: text, set: set}
	for _, decl := range syntax.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Body != nil {
				g.body(decl.Type, decl.Body)
			}
		case *ast.GenDecl:
			if decl.Tok == token.CONST || decl.Tok == token.VAR {
				g.body(nil, decl)
			}
		}
	}
	return g.mutants, nil
}

// A generator collects the mutants of a file.
type generator struct {
	file, text string
	set        *token.FileSet
	mutants    []mutant
}

// body adds the mutants of a body that returns the results of a signature. The results of
// a function literal are those of its own type.
func (g *generator) body(signature *ast.FuncType, body ast.Node) {
	ast.Inspect(body, func(n ast.Node) bool {
		if literal, ok := n.(*ast.FuncLit); ok {
			g.body(literal.Type, literal.Body)
			return false
		}
		return g.node(signature, n)
	})
}

// node adds the mutants of one node, and reports whether to look inside it.
func (g *generator) node(signature *ast.FuncType, n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		g.swap(n.OpPos, n.Op)
	case *ast.AssignStmt:
		g.swap(n.TokPos, n.Tok)
		if onlyBlank := strings.HasPrefix(strings.TrimLeft(g.source(n), "_, "), "="); n.Tok != token.DEFINE && !onlyBlank {
			g.add(remove, n, "")
		}
	case *ast.IncDecStmt:
		g.swap(n.TokPos, n.Tok)
		g.add(remove, n, "")
	case *ast.ExprStmt, *ast.DeferStmt:
		if strings.HasPrefix(g.source(n), "panic(") {
			return false // its message has no other effect
		}
		g.add(remove, n, "")
	case *ast.IfStmt:
		g.add(negate, n.Cond, "!("+g.source(n.Cond)+")")
	case *ast.BasicLit:
		if value, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			g.add(constant, n, strconv.FormatInt(value+1, 10))
		}
	case *ast.ReturnStmt:
		g.zero(signature, n)
	case *ast.ArrayType, *ast.ImportSpec:
		return false // lengths are part of the type
	}
	return true
}

// zero adds a mutant for each result that could be the zero value instead.
func (g *generator) zero(signature *ast.FuncType, n *ast.ReturnStmt) {
	var types []ast.Expr
	if signature != nil && signature.Results != nil {
		for _, field := range signature.Results.List {
			for range max(1, len(field.Names)) {
				types = append(types, field.Type)
			}
		}
	}
	if len(types) != len(n.Results) {
		return // no results, or those of another function
	}
	for i, result := range n.Results {
		switch g.source(result) {
		case "nil", "0", `""`:
		case "false":
			g.add(zero, result, "true")
		default:
			g.add(zero, result, "*new("+g.source(types[i])+")")
		}
	}
}

func (g *generator) swap(at token.Pos, tok token.Token) {
	if swap, ok := swaps[tok.String()]; ok {
		g.replace(swap.operator, at, tok.String(), swap.to)
	}
}

func (g *generator) add(operator string, n ast.Node, to string) {
	g.replace(operator, n.Pos(), g.source(n), to)
}

func (g *generator) replace(operator string, pos token.Pos, from, to string) {
	at := g.set.Position(pos)
	g.mutants = append(g.mutants, mutant{g.file, at.Line, operator, at.Offset, from, to})
}

func (g *generator) source(n ast.Node) string {
	return g.text[g.set.Position(n.Pos()).Offset:g.set.Position(n.End()).Offset]
}
