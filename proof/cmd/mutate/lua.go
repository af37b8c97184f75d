//go:build unix

package main

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	luaFunction = regexp.MustCompile(`^(?:local )?function ([\w.:]+)`)
	// luaToken matches a comment, a string, a condition of one line, a name, a
	// number or an operator.
	luaToken = regexp.MustCompile(`--[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\b(?:if|elseif) [^\n]*? then\b|[A-Za-z_]\w*|\d\w*(?:\.\d+)?|[<>=~]=|\.\.+|[-+*/%<>]`)
	luaIf    = regexp.MustCompile(`^(?:else)?if (.*) then$`)
)

// luaMutants returns every mutant of a Lua file.
func luaMutants(file, text string) []Mutant {
	var mutants []Mutant
	line, function, offset := 0, "", 0
	for row := range strings.Lines(text) {
		line++
		if match := luaFunction.FindStringSubmatch(row); match != nil {
			function = match[1]
		} else if strings.HasPrefix(row, "end") {
			function = ""
		}
		add := func(operator string, at int, from, to string) {
			mutants = append(mutants, Mutant{File: file, Line: line, Func: function, Operator: operator,
				From: from, To: to, offset: offset + at})
		}
		for at := 0; at < len(row); {
			found := luaToken.FindStringIndex(row[at:])
			if found == nil {
				break
			}
			start := at + found[0]
			token := row[start : at+found[1]]
			at += found[1]
			switch {
			case strings.HasPrefix(token, "--"):
			case luaIf.MatchString(token):
				condition := luaIf.FindStringSubmatchIndex(token)[2:4]
				from := token[condition[0]:condition[1]]
				add(Negate, start+condition[0], from, "not ("+from+")")
				at = start + condition[0] // look inside the condition too
			case token[0] >= '0' && token[0] <= '9':
				if value, err := strconv.ParseInt(token, 10, 64); err == nil {
					add(Constant, start, token, strconv.FormatInt(value+1, 10))
				}
			default:
				if swap, ok := swaps[token]; ok {
					add(swap.operator, start, token, strings.Replace(swap.to, "!=", "~=", 1))
				}
			}
		}
		offset += len(row)
	}
	return mutants
}
