package rules

import (
	"net/http"
	"time"

	"github.com/routelimit/limit/internal/grammar"
)

// What package limit makes of this one.

var (
	Everyone = NewKey(grammar.Global, "")
	ByIP     = NewKey(grammar.IP, "")
	ByUser   = NewKey(grammar.User, "")
)

func ByHeader(name string) KeyResolver    { return NewKey(grammar.Header, name) }
func ByCookie(name string) KeyResolver    { return NewKey(grammar.Cookie, name) }
func ByQuery(name string) KeyResolver     { return NewKey(grammar.Query, name) }
func ByPathValue(name string) KeyResolver { return NewKey(grammar.Path, name) }

func By(name string, fn func(*http.Request) string) KeyResolver { return KeyBy(name, fn) }

// nest returns a resolver of several as a text with parentheses has it: an Or within an Or
// stays one.
func nest(kind grammar.Kind, keys ...KeyResolver) KeyResolver {
	return labeled(KeyResolver{kind: kind, parts: keys})
}

func Per(key KeyResolver, window time.Duration, limit int64) Rule {
	return Rule{Key: key, Limit: limit, Window: window}
}

func PerIP(window time.Duration, limit int64) Rule   { return Per(ByIP, window, limit) }
func PerUser(window time.Duration, limit int64) Rule { return Per(ByUser, window, limit) }
func Global(window time.Duration, limit int64) Rule  { return Per(Everyone, window, limit) }

func Rules(list ...Rule) Set                { return New(ScopeRoute, "", list) }
func Named(policy string, list ...Rule) Set { return New(ScopeNamed, policy, list) }
func EachRoute(list ...Rule) Set            { return New(ScopeEach, "", list) }

func MustParse(text string) Set {
	set, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return set
}

// errorsOf returns the errors that errors.Join has joined.
func errorsOf(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	return []error{err}
}
