package grammar

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/routelimit/limit/core"
)

// A Head is what a rule begins with: "login: 20/1h per user".
type Head struct {
	Name   string
	Limit  int64
	Window time.Duration     // 0 if the text has a unit alone that only a calendar has
	Unit   core.CalendarUnit // of the window, if that is such a unit, or 0
	Key    Key
	At     int // the offset of the window
}

// Head reads the beginning of a rule.
func (r *Reader) Head() (h Head, err error) {
	if name, _, ok := strings.Cut(r.Peek(), ":"); ok {
		if !ValidName(name) {
			return h, r.Errorf("a name of 1 to %d letters, digits, '.', '_' or '-' before the colon", MaxName)
		}
		h.Name = name
		r.At += len(name) + len(":")
	}
	if h.Limit, err = r.count(); err != nil {
		return h, err
	}
	h.At = r.At
	h.Unit = ParseUnit(r.rest())
	if h.Window, err = r.window(h.Limit); err != nil {
		return h, err
	}
	switch {
	case r.Accept("global"):
		h.Key.Kind = Global
	case r.Accept("per"):
		h.Key, err = r.Key()
	default:
		err = r.Unexpected(`"per" and a key such as ip or user, or "global"`)
	}
	return h, err
}

// String returns h as a text.
func (h Head) String() string {
	var b strings.Builder
	if h.Name != "" {
		b.WriteString(h.Name + ": ")
	}
	b.WriteString(strconv.FormatInt(h.Limit, 10) + "/")
	if h.Unit != 0 {
		b.WriteString(UnitWord(h.Unit))
	} else {
		b.WriteString(FormatWindow(h.Window))
	}
	switch h.Key.Kind {
	case 0: // which is an error
		return b.String()
	case Global:
		b.WriteString(" ")
	default:
		b.WriteString(" per ")
	}
	return b.String() + h.Key.String()
}

// count reads a count and the slash after it.
func (r *Reader) count() (int64, error) {
	word := r.Peek()
	count, _, slash := strings.Cut(word, "/")
	digits := leading(word, isDigit)
	n, err := parseCount(count)
	switch {
	case digits == "":
		return 0, r.Errorf(`a count and a window, such as "5/2s"`)
	case errors.Is(err, strconv.ErrRange):
		return 0, r.Errorf("a smaller count")
	case err == nil && slash:
		r.At += len(count) + len("/")
		return n, nil
	case err == nil:
		digits = count
	}
	r.At += len(digits)
	if err == nil && strings.HasPrefix(r.Peek(), "/") {
		after := *r
		after.At += len("/")
		return 0, r.Errorf(`the slash without spaces around it: write "%s/%s"`, digits, after.exampleWindow())
	}
	return 0, r.Errorf(`"/" and a window right after the count, such as "%s/2s"`, digits)
}

// window reads a window. It is 0 if it needs a calendar. The limit is for an error.
func (r *Reader) window(limit int64) (time.Duration, error) {
	if word := r.rest(); word == UnitWord(core.Week) || word == UnitWord(core.Month) {
		r.At += len(word)
		return 0, nil
	}
	if r.rest() == "" && leading(r.Peek(), isDigit) != "" {
		return 0, r.Errorf(`the window right after the slash, without spaces: write "%d/%s"`, limit, r.exampleWindow())
	}
	return r.length("a window", "right after the slash")
}

// exampleWindow returns the next word for a message if it may be a window, or an example.
func (r Reader) exampleWindow() string {
	if word := r.Peek(); leading(word, isDigit) != "" && len(word) < len("106751d23h47m16s") {
		return word
	}
	return "2s"
}
