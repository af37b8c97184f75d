// Package tags reads routes and their limits from the tags of a struct:
//
//	type API struct {
//		Update http.HandlerFunc `route:"POST /update" limit:"5/2s per ip; 1000/1m global"`
//		Login  http.HandlerFunc `route:"POST /login" limit:"5/1m per ip" policy:"login"`
//		Health http.HandlerFunc `route:"GET /health" limit:"-"`
//	}
//
// The caller checks the handlers, and mounts the routes.
package tags

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/routelimit/limit/rules"
)

// A Field is a field of a struct with a route or a limit tag. A part that is
// missing or malformed is zero. Join returns the errors about it.
type Field struct {
	Name         string // the struct and the field, such as "API.Update"
	Method, Path string // "POST" and "/update"; Path is as the router writes it

	Limited bool   // whether Limit has rules; false for limit:"-"
	Limit   string // the rules
	Named   bool   // whether the rules have a name
	Policy  string // the name

	Handler any // the value of the field, nil also for a nil func

	errs []error
}

// Read returns the fields of a struct, or of the struct that a pointer points
// to, in their order. Fields of embedded structs count too. The error says that
// api has no routes; Join returns the errors of the fields.
func Read(api any) ([]*Field, error) {
	v := reflect.ValueOf(api)
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return nil, fmt.Errorf("limit: no routes in %T: write a struct, or a pointer to one that is not nil", api)
	}
	w := walk{routes: make(map[string]string)}
	w.fieldsOf(v, v.Type().Name(), nil)
	if len(w.fields) == 0 {
		return nil, fmt.Errorf("limit: no routes in %T: "+
			"write tags such as `route:\"POST /update\" limit:\"5/2s per ip\"` after its fields", api)
	}
	return w.fields, nil
}

// Add adds an error to f. If it joins several, Add adds each.
func (f *Field) Add(err error) { f.errs = append(f.errs, Prefix(f.Name, err)...) }

func (f *Field) addf(format string, args ...any) { f.Add(fmt.Errorf("limit: "+format, args...)) }

// Rules returns the rules of a limited field, which may name functions. If they are wrong,
// it adds what is wrong to f, and returns false.
func (f *Field) Rules(functions rules.Functions) (set rules.Set, ok bool) {
	set, err := functions.Parse(f.Limit)
	if err == nil && f.Named {
		set = set.Named(f.Policy)
		err = set.Validate()
	}
	f.Add(err)
	return set, err == nil
}

// Join returns an error that joins the errors of all fields, or nil.
func Join(fields []*Field) error {
	var errs []error
	for _, f := range fields {
		errs = append(errs, f.errs...)
	}
	return errors.Join(errs...)
}

// Prefix returns the errors that err joins, each with the name of a field: none for nil.
func Prefix(field string, err error) (errs []error) {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			errs = append(errs, Prefix(field, err)...)
		}
		return errs
	}
	return []error{fmt.Errorf("field %s: %w", field, err)}
}

// A walk collects the fields of a struct.
type walk struct {
	fields []*Field
	routes map[string]string // the field of each route
}

// fieldsOf collects the fields of a struct that is embedded in structs of the given types. It walks
// a nil pointer as one to the zero struct, and so reports its nil handlers.
func (w *walk) fieldsOf(v reflect.Value, name string, within []reflect.Type) {
	t := v.Type()
	if slices.Contains(within, t) {
		return // a struct that embeds a pointer to its own type
	}
	within = append(within, t)
	for i := range t.NumField() {
		f, value := t.Field(i), v.Field(i)
		field := &Field{Name: strings.TrimPrefix(name+"."+f.Name, ".")}
		if w.read(field, string(f.Tag), value) || !f.Anonymous {
			continue
		}
		if f.Type.Kind() == reflect.Pointer {
			value = value.Elem()
			if !value.IsValid() {
				value = reflect.Zero(f.Type.Elem())
			}
		}
		if value.Kind() == reflect.Struct {
			w.fieldsOf(value, field.Name, within)
		}
	}
}

var (
	pair  = regexp.MustCompile(`^ *([^\x00-\x20:"\x7f]+):("(?:[^"\\]|\\.)*")`)
	meant = regexp.MustCompile(`(^|[\s,;])(route|limit)\s*:(\s*"|\S|$)`)
)

// parse returns the values of a tag, and the rest from where it is malformed: unlike
// [reflect.StructTag.Lookup], which finds nothing there.
func parse(tag string) (values map[string]string, rest string) {
	values = make(map[string]string)
	for rest = tag; ; {
		found := pair.FindStringSubmatch(rest)
		if found == nil {
			return values, strings.TrimLeft(rest, " ")
		}
		value, err := strconv.Unquote(found[2])
		if _, twice := values[found[1]]; twice || err != nil {
			return values, rest
		}
		values[found[1]], rest = value, rest[len(found[0]):]
	}
}

// read reads the tag of a field, and reports whether it is about a route.
func (w *walk) read(f *Field, tag string, value reflect.Value) bool {
	values, malformed := parse(tag)
	route, isRoute := values["route"]
	limits, isLimited := values["limit"]
	policy, isNamed := values["policy"]
	if !isRoute && !isLimited && !meant.MatchString(malformed) {
		return false
	}
	w.fields = append(w.fields, f)
	if malformed != "" {
		f.addf("the tag is malformed at %q: write `route:\"POST /update\" limit:\"5/2s per ip\" policy:\"updates\"`", malformed)
		return true
	}

	method, path, _ := strings.Cut(route, " ")
	switch {
	case !isRoute:
		f.addf("a limit without a route: write route:\"POST /update\" beside it")
	case !slices.Contains(methods, method) || !validPath(path):
		f.addf("route %q: write a method, a space and a path, such as \"POST /update\"", route)
	default:
		f.Method, f.Path = method, path
		if first, twice := w.routes[route]; twice {
			f.addf("route %q is also declared by field %s: remove one of them", route, first)
		}
		w.routes[route] = f.Name
	}

	switch {
	case !isLimited:
		f.addf("no limit tag: write limit:\"100/1m per ip\", or limit:\"-\" for a route without limits")
	case limits != "-":
		f.Limited, f.Limit, f.Named, f.Policy = true, limits, isNamed, policy
	case isNamed:
		f.addf("a policy without limits: remove policy:%q, or write rules instead of limit:\"-\"", policy)
	}

	missing := isNil(value)
	if missing {
		f.addf("the handler is nil: set the field before mounting")
	}
	if !value.CanInterface() {
		f.addf("the field is not exported, so its handler cannot be read: begin its name with a capital letter")
	} else if !missing {
		f.Handler = value.Interface()
	}
	return true
}

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace}

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
