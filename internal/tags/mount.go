package tags

import (
	"fmt"
	"net/http"
)

// Mount registers the handlers in the fields of a struct on mux, or none if anything is
// wrong. Limited returns the handler of a field with rules. It adds to the field what is
// wrong with them; next is nil if the field has no handler.
func Mount(mux *http.ServeMux, api any, limited func(f *Field, next http.Handler) http.Handler) error {
	fields, err := Read(api)
	if err != nil {
		return err
	}
	trial := http.NewServeMux()
	tried := make(map[string]bool)
	handlers := make([]http.Handler, len(fields))
	for i, f := range fields {
		handlers[i] = f.handler()
		if f.Limited {
			handlers[i] = limited(f, handlers[i])
		}
		if pattern := f.Pattern(); pattern != "" && !tried[pattern] {
			tried[pattern] = true
			f.Add(register(trial, pattern))
		}
	}
	if err := Join(fields); err != nil {
		return err
	}
	for i, f := range fields {
		mux.Handle(f.Pattern(), handlers[i])
	}
	return nil
}

// Pattern returns the pattern of the field's route for a ServeMux, or "" if it has none.
func (f *Field) Pattern() string {
	if f.Path == "" {
		return ""
	}
	return f.Method + " " + f.Path
}

func (f *Field) handler() http.Handler {
	switch h := f.Handler.(type) {
	case nil: // an error of Read
		return nil
	case http.Handler:
		return h
	case func(http.ResponseWriter, *http.Request):
		return http.HandlerFunc(h)
	}
	f.addf("%T is not a handler: write an http.Handler or a func(http.ResponseWriter, *http.Request)", f.Handler)
	return nil
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
