package rules

import (
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A Cost says how many units a request costs: see [Rule].Cost. Make it with [CostBy].
// The zero Cost is none. Costs are comparable.
type Cost struct {
	name string
	fn   *func(*http.Request) int64 // the address tells functions apart
}

// CostBy returns a cost that a function computes. The name is one word, which errors
// show. Each call makes another Cost, as with limit.By.
func CostBy(name string, fn func(*http.Request) int64) Cost { return Cost{name: name, fn: &fn} }

// String returns the name of c.
func (c Cost) String() string { return c.name }

// Units returns how many units a request costs: 1 if c is the zero Cost.
func (c Cost) Units(r *http.Request) int64 {
	if c.fn == nil {
		return 1
	}
	return (*c.fn)(r)
}

// A Settlement says what a request really cost, once it has been answered: see [Rule].Settle. Make
// it with [OnStatus] or [SettleBy], or write [AsUsed]. The zero Settlement is none. Settlements are
// comparable: OnStatus(401) == OnStatus(401).
type Settlement struct {
	statuses [(maxStatus - minStatus + 64) / 64]uint64 // of OnStatus: a bit for each
	name     string                                    // of SettleBy
	fn       *func(*http.Request, int) int64
}

// The statuses of final responses.
const (
	minStatus = 200
	maxStatus = 599
)

// SettleBy returns a settlement by a function of a request and the status of its response. The name
// is one word, which errors show. Each call makes another Settlement, as with limit.By.
func SettleBy(name string, fn func(r *http.Request, status int) int64) Settlement {
	return Settlement{name: name, fn: &fn}
}

// String returns s as code writes it, "OnStatus(401, 403)", or the name of SettleBy.
func (s Settlement) String() string {
	if s.fn != nil || s == (Settlement{}) {
		return s.name
	}
	return "OnStatus(" + strings.ReplaceAll(s.text(), ",", ", ") + ")"
}

func (s *Settlement) counts(status int) bool {
	return minStatus <= status && status <= maxStatus && s.statuses[(status-minStatus)/64]>>((status-minStatus)%64)&1 != 0
}

// Units returns the true cost of a request that was answered with a status, or [AsCharged].
func (s *Settlement) Units(r *http.Request, status int) int64 {
	switch {
	case s.fn != nil:
		return (*s.fn)(r, status)
	case s.counts(status):
		return AsCharged
	}
	return 0
}

// text returns s as the text grammar writes it.
func (s Settlement) text() string {
	if s.fn != nil {
		return s.name
	}
	var list []string
	for status := minStatus; status <= maxStatus; status++ {
		if s.counts(status) {
			list = append(list, strconv.Itoa(status))
		}
	}
	return strings.Join(list, ",")
}

// equal reports whether k and o are the same resolver by value.
func (k KeyResolver) equal(o KeyResolver) bool {
	return k.label == o.label && k.fn == o.fn && slices.EqualFunc(k.parts, o.parts, KeyResolver.equal)
}

// A fallback is a handler that Go cannot compare, such as an [http.HandlerFunc]. Its
// address is that of one set.
type fallback struct{ http.Handler }

// identified returns h in a form that can be compared.
func identified(h http.Handler) http.Handler {
	if h == nil || reflect.ValueOf(h).Comparable() {
		return h
	}
	return &fallback{h}
}

// OnStatus returns a settlement for [Rule].Settle: only requests that are answered with one of the
// statuses count, such as failed attempts to log in. They count what they were charged. Until a
// request is answered it counts too, so that many attempts at once do not slip through: set the
// Limit above the number of good requests of a key in flight. For a [Ban] an answer is at least one
// strike, and a request that is not answered is none: put a rule beside it that bounds attempts at
// once. OnStatus panics without a status, and on a number that is no final status.
func OnStatus(statuses ...int) (s Settlement) {
	if len(statuses) == 0 {
		panic("limit: OnStatus without a status never counts: write at least one, such as http.StatusUnauthorized")
	}
	for _, status := range statuses {
		if status < minStatus || status > maxStatus {
			panic(fmt.Sprintf("limit: OnStatus(%d): write statuses from %d to %d", status, minStatus, maxStatus))
		}
		s.statuses[(status-minStatus)/64] |= 1 << ((status - minStatus) % 64)
	}
	return s
}

// AsUsed is the settlement of requests whose handlers say what they use: see
// limit.Decision.Use. A request whose handler says nothing keeps its charge. In text it is
// "settle used", unless the program has a function of that name.
var AsUsed = SettleBy("used", func(*http.Request, int) int64 { return AsCharged })

// AsCharged is what [Settlement.Units] returns for a request that keeps its charge. A cost
// is never negative.
const AsCharged = math.MinInt64
