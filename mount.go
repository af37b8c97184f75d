package limit

import (
	"fmt"
	"net/http"

	"github.com/routelimit/limit/internal/tags"
)

// Mount registers the handlers in the fields of a struct on mux, by their tags:
//
//	type API struct {
//		Update http.HandlerFunc `route:"POST /update" limit:"5/2s per ip; 1000/1m global"`
//		Login  http.HandlerFunc `route:"POST /login" limit:"5/1m per ip" policy:"login"`
//		User   http.HandlerFunc `route:"GET /users/{id}" limit:"10/1s per path id"`
//		Health http.HandlerFunc `route:"GET /health" limit:"-"`
//	}
//
// The route tag is a method and a path, as mux writes it. The limit tag has rules
// in the text grammar of [Parse], or "-" for a route without limits. It is
// required, so that a forgotten tag does not leave a route without limits. The
// policy tag is the name of a [Named] set. A handler is an [http.Handler] or a
// func(http.ResponseWriter, *http.Request). Fields of embedded structs count too.
// Mount ignores fields that have neither a route nor a limit tag.
//
// If anything is wrong with the struct, Mount returns an error that lists
// everything that is wrong, and registers nothing. It panics if a route conflicts
// with one that mux already has, as [http.ServeMux.Handle] does.
func (l *Limiter) Mount(mux *http.ServeMux, api any) error {
	fields, err := tags.Read(api)
	if err != nil {
		return err
	}
	trial := http.NewServeMux()
	tried := make(map[string]bool)
	handlers := make([]http.Handler, len(fields))
	for i, f := range fields {
		switch h := f.Handler.(type) {
		case nil: // an error of tags
		case http.Handler:
			handlers[i] = h
		case func(http.ResponseWriter, *http.Request):
			handlers[i] = http.HandlerFunc(h)
		default:
			f.Add(fmt.Errorf("limit: %T is not a handler: write an http.Handler or a func(http.ResponseWriter, *http.Request)", h))
		}
		if f.Limited {
			handlers[i] = l.mounted(f, handlers[i])
		}
		if pattern := f.Method + " " + f.Path; f.Path != "" && !tried[pattern] {
			tried[pattern] = true
			f.Add(register(trial, pattern))
		}
	}
	if err := tags.Join(fields); err != nil {
		return err
	}
	for i, f := range fields {
		mux.Handle(f.Method+" "+f.Path, handlers[i])
	}
	return nil
}

// mounted returns a handler that limits next by the rules of a field. It adds to
// f what is wrong with the rules.
func (l *Limiter) mounted(f *tags.Field, next http.Handler) http.Handler {
	var rules RuleSet
	if f.Named {
		rules = Named(f.Policy)
	}
	if err := rules.UnmarshalText([]byte(f.Limit)); err != nil {
		f.Add(err)
		return nil
	}
	var at place
	if f.Path != "" {
		at.pattern = f.Method + " " + f.Path
	}
	p, err := l.policy(rules, &at)
	f.Add(err)
	if err != nil || next == nil {
		return nil
	}
	return p.Handler(next)
}

// register registers a pattern, and returns the panic of mux as an error.
func register(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("limit: route %q: %v", pattern, problem)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}
