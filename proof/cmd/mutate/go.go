//go:build unix

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
)

// goMutants returns every mutant of a Go file. Some of them do not compile, since types
// are not looked at: without a statement a variable may be unused.
func goMutants(file, text string) ([]Mutant, error) {
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
				g.function = name(decl)
				g.body(decl.Type, decl.Body)
			}
		case *ast.GenDecl:
			g.function = ""
			if decl.Tok == token.CONST || decl.Tok == token.VAR {
				ast.Inspect(decl, func(n ast.Node) bool { return g.node(nil, n) })
			}
		}
	}
	return g.mutants, nil
}

// A generator collects the mutants of a file.
type generator struct {
	file, text string
	set        *token.FileSet
	function   string
	mutants    []Mutant
}

// body adds the mutants of a function's body. The results of a function literal
// are those of its own type.
func (g *generator) body(signature *ast.FuncType, body *ast.BlockStmt) {
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
		if n.Tok != token.DEFINE && !onlyBlank(n) {
			g.add(Remove, n.Pos(), n.End(), "")
		}
	case *ast.IncDecStmt:
		g.swap(n.TokPos, n.Tok)
		g.add(Remove, n.Pos(), n.End(), "")
	case *ast.ExprStmt, *ast.DeferStmt:
		if isPanic(n) {
			return false // its message has no other effect
		}
		g.add(Remove, n.Pos(), n.End(), "")
	case *ast.IfStmt:
		g.add(Negate, n.Cond.Pos(), n.Cond.End(), "!("+g.source(n.Cond)+")")
	case *ast.BasicLit:
		if value, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			g.add(Constant, n.Pos(), n.End(), strconv.FormatInt(value+1, 10))
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
	types := results(signature)
	if len(types) != len(n.Results) {
		return // no results, or those of another function
	}
	for i, result := range n.Results {
		switch g.source(result) {
		case "nil", "0", `""`:
		case "false":
			g.add(Zero, result.Pos(), result.End(), "true")
		default:
			g.add(Zero, result.Pos(), result.End(), "*new("+g.source(types[i])+")")
		}
	}
}

func (g *generator) swap(at token.Pos, tok token.Token) {
	if swap, ok := swaps[tok.String()]; ok {
		g.add(swap.operator, at, at+token.Pos(len(tok.String())), swap.to)
	}
}

func (g *generator) add(operator string, from, to token.Pos, text string) {
	at := g.set.Position(from)
	g.mutants = append(g.mutants, Mutant{
		File: g.file, Line: at.Line, Func: g.function, Operator: operator,
		From: g.text[at.Offset:g.set.Position(to).Offset], To: text, offset: at.Offset,
	})
}

func (g *generator) source(n ast.Node) string {
	return g.text[g.set.Position(n.Pos()).Offset:g.set.Position(n.End()).Offset]
}

// results returns the type of each result.
func results(signature *ast.FuncType) []ast.Expr {
	if signature == nil || signature.Results == nil {
		return nil
	}
	var types []ast.Expr
	for _, field := range signature.Results.List {
		for range max(1, len(field.Names)) {
			types = append(types, field.Type)
		}
	}
	return types
}

// onlyBlank reports whether a statement assigns to nothing but _.
func onlyBlank(n *ast.AssignStmt) bool {
	for _, to := range n.Lhs {
		if name, ok := to.(*ast.Ident); !ok || name.Name != "_" {
			return false
		}
	}
	return true
}

func isPanic(n ast.Node) bool {
	statement, ok := n.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	to, ok := call.Fun.(*ast.Ident)
	return ok && to.Name == "panic"
}

// name returns the name of a function as a stack trace prints it.
func name(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return decl.Name.Name
	}
	switch t := decl.Recv.List[0].Type.(type) {
	case *ast.StarExpr:
		if of, ok := t.X.(*ast.Ident); ok {
			return "(*" + of.Name + ")." + decl.Name.Name
		}
	case *ast.Ident:
		return t.Name + "." + decl.Name.Name
	}
	return decl.Name.Name
}
