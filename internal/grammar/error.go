package grammar

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/routelimit/limit/internal/excerpt"
)

// A ParseError says where a text departs from the grammar.
type ParseError struct {
	Text   string // the whole text
	Offset int    // of Found, in bytes
	Found  string // the word that does not fit, or "" at the end of the text
	Want   string // what to write instead
}

// Error returns a message with the line and column, which count characters from
// 1, and below it the line with a caret under the column.
func (e *ParseError) Error() string {
	start := strings.LastIndexByte(e.Text[:e.Offset], '\n') + 1
	before := e.Text[start:e.Offset]
	after, _, _ := strings.Cut(e.Text[e.Offset:], "\n")
	where := fmt.Sprintf("column %d", utf8.RuneCountInString(before)+1)
	if strings.Contains(strings.TrimSpace(e.Text), "\n") {
		where = fmt.Sprintf("line %d, %s", strings.Count(e.Text[:start], "\n")+1, where)
	}
	found := strconv.Quote(excerpt.Start(e.Found))
	switch e.Found {
	case "":
		found = "the end"
	case "\n":
		found = "the end of the line"
	}
	before, after = excerpt.Printable(excerpt.End(before)), excerpt.Printable(excerpt.Start(after))
	return fmt.Sprintf("limit: %s of %q: found %s, want %s\n\t%s\n\t%s^",
		where, before+after, found, e.Want, before+after, strings.Repeat(" ", utf8.RuneCountInString(before)))
}
