//go:build unix

package mutate

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	// luaToken matches a comment, a string, a condition of one line, a name, a
	// number or an operator.
	luaToken = regexp.MustCompile(`--[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\b(?:if|elseif) [^\n]*? then\b|[A-Za-z_]\w*|\d\w*(?:\.\d+)?|[<>=~]=|\.\.+|[-+*/%<>]`)
	luaIf    = regexp.MustCompile(`^(?:else)?if (.*) then$`)
)

// luaMutants returns every mutant of a Lua file.
func luaMutants(file, text string) (mutants []mutant, err error) {
	line, offset := 0, 0
	for row := range strings.Lines(text) {
		line++
		add := func(operator string, at int, from, to string) {
			mutants = append(mutants, mutant{file, line, operator, offset + at, from, to})
		}
		for at := 0; ; {
			found := luaToken.FindStringIndex(row[at:])
			if found == nil {
				break
			}
			start := at + found[0]
			token := row[start : at+found[1]]
			at += found[1]
			if condition := luaIf.FindStringSubmatchIndex(token); condition != nil {
				at = start + condition[2] // look inside the condition too
				from := token[condition[2]:condition[3]]
				add(negate, at, from, "not ("+from+")")
			} else if value, err := strconv.ParseInt(token, 10, 64); err == nil {
				add(constant, start, token, strconv.FormatInt(value+1, 10))
			} else if swap, ok := swaps[token]; ok { // which has no comment and no string
				add(swap.operator, start, token, strings.Replace(swap.to, "!=", "~=", 1))
			}
		}
		offset += len(row)
	}
	return mutants, nil
}
