package limit

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// A Route is a field of a struct that is annotated as a route. See [Routes].
type Route struct {
	Method, Path string  // "POST" and "/update"
	Rules        RuleSet // none unless Limited
	Limited      bool    // false says limit:"-", a route without limits on purpose
	Field        string  // where it was declared, such as "API.Update", for messages
	Handler      any     // the value of the field; not nil
}

// Routes returns the routes in the tags of a struct, or of what a pointer to a
// struct points to, in the order of its fields:
//
//	type API struct {
//		Update http.HandlerFunc `route:"POST /update" limit:"5/2s per ip; 1000/1m global"`
//		Login  http.HandlerFunc `route:"POST /login" limit:"5/1m per ip" policy:"login"`
//		Health http.HandlerFunc `route:"GET /health" limit:"-"`
//	}
//
// The limit tag is in the text grammar of [Parse]. It is required, so that no
// route is without limits by mistake. The policy tag is the name of a set made
// by [Named]. Fields of embedded structs count too; those without both the
// route and the limit tag do not.
//
// It is for [Limiter.Mount] and its like in adapters, which check whether the
// fields are handlers of their framework. The error joins one for each thing
// wrong with the struct.
func Routes(api any) ([]Route, error) {
	v := reflect.ValueOf(api)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil, fmt.Errorf("limit: no routes in %T: write a struct, or a pointer to one that is not nil", api)
	}
	w := routeWalk{seen: make(map[string]string)}
	w.walk(v, v.Type().Name(), nil)
	if len(w.routes)+len(w.errs) == 0 {
		return nil, fmt.Errorf("limit: no routes in %T: "+
			"write tags such as `route:\"POST /update\" limit:\"5/2s per ip\"` behind its fields", api)
	}
	if err := errors.Join(w.errs...); err != nil {
		return nil, err
	}
	return w.routes, nil
}

// A routeWalk collects what it finds in a struct.
type routeWalk struct {
	routes []Route
	errs   []error
	seen   map[string]string // the field of each route
}

// walk walks a struct that is embedded in others of the given types. A nil
// pointer is walked as if it pointed to the zero struct, whose handlers are
// then found to be nil.
func (w *routeWalk) walk(v reflect.Value, name string, within []reflect.Type) {
	t := v.Type()
	if slices.Contains(within, t) {
		return // a struct that embeds a pointer to its own type
	}
	within = append(within, t)
	for i := range t.NumField() {
		f, value := t.Field(i), v.Field(i)
		field := strings.TrimPrefix(name+"."+f.Name, ".")
		_, isRoute := f.Tag.Lookup("route")
		_, isLimited := f.Tag.Lookup("limit")
		if isRoute || isLimited {
			w.field(f, value, field)
			continue
		}
		if strings.HasPrefix(string(f.Tag), "route:") || strings.HasPrefix(string(f.Tag), "limit:") {
			w.problem(field, "the tag %q cannot be read: write `route:\"POST /update\" limit:\"5/2s per ip\"`", f.Tag)
		}
		if !f.Anonymous {
			continue
		}
		if f.Type.Kind() == reflect.Pointer {
			value = value.Elem()
			if !value.IsValid() {
				value = reflect.Zero(f.Type.Elem())
			}
		}
		if value.Kind() == reflect.Struct {
			w.walk(value, field, within)
		}
	}
}

// field reads a field with a route or a limit tag.
func (w *routeWalk) field(f reflect.StructField, value reflect.Value, field string) {
	route, isRoute := f.Tag.Lookup("route")
	limits, isLimited := f.Tag.Lookup("limit")
	policy, isNamed := f.Tag.Lookup("policy")

	r := Route{Field: field, Limited: limits != "-"}
	r.Method, r.Path, _ = strings.Cut(route, " ")
	switch first, twice := w.seen[route]; {
	case !isRoute:
		w.problem(field, "a limit without a route: write route:\"POST /update\" beside it")
	case !validMethod(r.Method) || !validPath(r.Path):
		w.problem(field, "route %q: write a method, a space and a path, such as \"POST /update\"", route)
	case twice:
		w.problem(field, "route %q is that of field %s: drop one of them", route, first)
	}
	w.seen[route] = field

	switch {
	case !isLimited:
		w.problem(field, "no limit tag: write limit:\"100/1m per ip\", or limit:\"-\" for a route without limits")
	case limits == "-" && isNamed:
		w.problem(field, "a policy without limits: drop policy:%q, or write rules instead of limit:\"-\"", policy)
	case r.Limited:
		var err error
		if r.Rules, err = Parse(limits); err == nil && isNamed {
			r.Rules = Named(policy, r.Rules.rules...)
			err = r.Rules.Validate()
		}
		w.add(field, err)
	}

	switch {
	case !value.CanInterface():
		w.problem(field, "a handler that cannot be reached: begin the name of the field with a capital letter")
	case isNil(value):
		w.problem(field, "the handler is nil: set the field before mounting")
	default:
		r.Handler = value.Interface()
	}
	w.routes = append(w.routes, r)
}

func (w *routeWalk) problem(field, format string, args ...any) {
	w.add(field, fmt.Errorf("limit: "+format, args...))
}

// add adds an error of a field or, so that each names it, those that it joins.
func (w *routeWalk) add(field string, err error) {
	if err == nil {
		return
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			w.add(field, err)
		}
		return
	}
	w.errs = append(w.errs, fmt.Errorf("field %s: %w", field, err))
}

func validMethod(method string) bool {
	return method != "" && method != otherMethod && method == knownMethod(method)
}

func validPath(path string) bool {
	return strings.HasPrefix(path, "/") && !strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c == 0x7f })
}

// isNil reports whether a handler is nil, also within an interface.
func isNil(v reflect.Value) bool {
	for v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Func, reflect.Pointer, reflect.Map, reflect.Slice, reflect.Chan:
		return v.IsNil()
	}
	return false
}

// Mount registers the handlers in the fields of a struct on mux, by their tags.
// See [Routes]. A handler is an [http.Handler] or a func(http.ResponseWriter,
// *http.Request), and the paths are those of mux: "/users/{id}".
//
// If anything is wrong with the struct, Mount returns everything that is, and
// registers nothing. A route that conflicts with one that mux already has
// panics, as in [http.ServeMux.Handle].
func (l *Limiter) Mount(mux *http.ServeMux, api any) error {
	routes, err := Routes(api)
	if err != nil {
		return err
	}
	var w routeWalk
	trial := http.NewServeMux()
	handlers := make([]http.Handler, len(routes))
	for i, r := range routes {
		switch h := r.Handler.(type) {
		case http.Handler:
			handlers[i] = h
		case func(http.ResponseWriter, *http.Request):
			handlers[i] = http.HandlerFunc(h)
		default:
			w.problem(r.Field, "%T is no handler: write an http.Handler or a func(http.ResponseWriter, *http.Request)", h)
			continue
		}
		if r.Limited {
			_, err := l.Bind(r.Rules, Call{Pattern: r.Path})
			w.add(r.Field, err)
		}
		w.add(r.Field, handle(trial, r, handlers[i]))
	}
	if err := errors.Join(w.errs...); err != nil {
		return err
	}
	for i, r := range routes {
		if r.Limited {
			handlers[i] = l.Limit(r.Rules)(handlers[i])
		}
		mux.Handle(r.Method+" "+r.Path, handlers[i])
	}
	return nil
}

// handle registers a handler, and returns what mux has against it.
func handle(mux *http.ServeMux, r Route, h http.Handler) (err error) {
	defer func() {
		if problem := recover(); problem != nil {
			err = fmt.Errorf("limit: route %q: %v", r.Method+" "+r.Path, problem)
		}
	}()
	mux.Handle(r.Method+" "+r.Path, h)
	return nil
}
