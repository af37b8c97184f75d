package access

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/routelimit/limit/internal/excerpt"
)

// A ParseError says where a list, or an entry of [Bans.Ban], is wrong.
type ParseError struct {
	Line    int    // from 1; 0 for an entry of Ban
	Column  int    // in characters, from 1
	Problem string // what is wrong, and what to write instead

	mark *excerpt.Mark // in the line up to the end of the wrong word, or nil
}

// Error returns the place and the problem, and below them the line with a caret. It
// shows no secret of a header.
func (e *ParseError) Error() string {
	where := fmt.Sprintf("column %d", e.Column)
	if e.Line > 0 {
		where = fmt.Sprintf("line %d, %s", e.Line, where)
	}
	text := fmt.Sprintf("access: %s: %s", where, e.Problem)
	if e.mark != nil {
		text += e.mark.String()
	}
	return text
}

// errorAt returns an error about a word of a line. Of a line about a header it shows
// only the first word, since the others may be a secret, and errors are logged.
func errorAt(line string, w word, problem string) *ParseError {
	e := &ParseError{Column: column(line, w.at), Problem: problem}
	before, found := line[:w.at], excerpt.Start(line[w.at:w.end])
	if fields := strings.Fields(before); len(fields) > 0 && fields[0] == "header" {
		before, found = "header ", "…"
	}
	mark := excerpt.In(before, found)
	e.mark = &mark
	return e
}

func column(line string, at int) int { return utf8.RuneCountInString(line[:at]) + 1 }
