package grammar

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/routelimit/limit/core"
)

// A unit is a word for a length of time.
type unit struct {
	word string
	time.Duration
}

const day = 24 * time.Hour

// units begins with the words that FormatWindow uses, largest first.
var units = []unit{
	{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second},
	{"ms", time.Millisecond}, {"µs", time.Microsecond}, {"ns", time.Nanosecond},
	{"us", time.Microsecond}, {"μs", time.Microsecond}, // other spellings of µs
	{"day", day}, {"hour", time.Hour}, {"minute", time.Minute}, {"second", time.Second},
}

// FormatWindow returns a window as a text: "2s", "1h30m", "1d". The text is part
// of the names of rules, and so of the keys of their state: it must never change.
func FormatWindow(d time.Duration) string {
	if d <= 0 {
		return d.String()
	}
	var b strings.Builder
	for _, u := range units {
		if n := d / u.Duration; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10))
			b.WriteString(u.word)
			d -= n * u.Duration
		}
	}
	return b.String()
}

// times returns the length of a number of units. It is not ok if the number is
// malformed, out of range, or more precise than nanoseconds.
func (u unit) times(number string) (d time.Duration, ok bool) {
	whole, fraction, _ := strings.Cut(number, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n > int64(math.MaxInt64/u.Duration) {
		return 0, false
	}
	d = time.Duration(n) * u.Duration
	for place := u.Duration; fraction != ""; fraction = fraction[1:] {
		if fraction[0] < '0' || fraction[0] > '9' || place%10 != 0 {
			return 0, false
		}
		place /= 10
		d += time.Duration(fraction[0]-'0') * place
	}
	return d, d >= 0
}

// Length reads a length of time: numbers and units, or a unit alone.
func (r *Reader) Length(what, where string) (time.Duration, error) {
	r.skip(blanks)
	return r.length(what, where)
}

// Micros reads a length of time that is a whole number of microseconds, and returns that.
func (r *Reader) Micros(what, where string) (int64, error) {
	r.skip(blanks)
	start := r.At
	d, err := r.length(what, where)
	if err == nil && d%time.Microsecond != 0 {
		r.At = start
		err = r.Errorf("%s of a whole number of microseconds", what)
	}
	return d.Microseconds(), err
}

func (r *Reader) length(what, where string) (time.Duration, error) {
	start := r.At
	var sum time.Duration
	for rest := r.rest(); ; {
		number := leading(rest, func(c rune) bool { return isDigit(c) || c == '.' })
		word := leading(rest[len(number):], unicode.IsLetter)
		i := slices.IndexFunc(units, func(u unit) bool { return u.word == word })
		switch {
		case i < 0 && number == "":
			return 0, r.Errorf("%s such as 2s, 1m, 1h or 1d %s", what, where)
		case i < 0:
			r.At += len(number)
			if next := r.Peek(); word == "" && slices.ContainsFunc(units, func(u unit) bool { return u.word == next }) {
				return 0, r.Errorf(`the unit right after the number, without spaces: write "%s%s"`, number, next)
			}
			return 0, r.Errorf("a unit such as s, m, h or d")
		}
		r.At += len(number) + len(word)
		d, ok := units[i].times(cmp.Or(number, "1"))
		if !ok || d > math.MaxInt64-sum {
			r.At = start
			return 0, r.Errorf("%s of at most 366d, with numbers such as 2 or 1.5", what)
		}
		sum += d
		rest = r.rest()
		if leading(rest, isDigit) == "" {
			break
		}
	}
	if sum == 0 {
		r.At = start
		return 0, r.Errorf("%s of at least 1ms", what)
	}
	return sum, nil
}

// Number reads a number from 1 to most.
func (r *Reader) Number(most int64, want string) (int64, error) {
	n, err := parseCount(r.Peek())
	if err != nil || n < 1 || n > most {
		return 0, r.Unexpected(want)
	}
	r.Next()
	return n, nil
}

// parseCount returns the number in a word of digits, or of digits and k or M.
func parseCount(word string) (int64, error) {
	digits, unit := word, int64(1)
	if d, ok := strings.CutSuffix(word, "k"); ok {
		digits, unit = d, 1_000
	} else if d, ok := strings.CutSuffix(word, "M"); ok {
		digits, unit = d, 1_000_000
	}
	if digits == "" || leading(digits, isDigit) != digits {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return 0, strconv.ErrRange
	}
	return n * unit, nil
}

var calendarWords = [...]string{core.Hour: "hour", core.Day: "day", core.Week: "week", core.Month: "month"}

// UnitWord returns the word for a calendar unit, also for an invalid one.
func UnitWord(u core.CalendarUnit) string {
	if u == 0 || int(u) >= len(calendarWords) {
		return fmt.Sprint("unit-", uint8(u))
	}
	return calendarWords[u]
}

// ParseUnit returns the calendar unit of a word, or 0.
func ParseUnit(word string) core.CalendarUnit {
	return core.CalendarUnit(max(0, slices.Index(calendarWords[:], word)))
}
