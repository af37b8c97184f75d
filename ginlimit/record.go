package ginlimit

import (
	"net/http"
	"reflect"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit/adapter"
)

// record puts a Recorder below Gin's own writer. Above it, in c.Writer, a Recorder would miss what
// Gin writes last, such as a status without a body, and what middleware writes to a writer that it
// has kept. It returns nil if it does not find Gin's writer: then only what is written before the
// handlers return is settled.
func record(c *gin.Context) *adapter.Recorder {
	below := belowGin(c.Writer)
	if !below.IsValid() {
		return nil
	}
	recorder := adapter.Record(below.Interface().(http.ResponseWriter))
	below.Set(reflect.ValueOf(recorder.Writer()))
	return recorder
}

// belowGin returns the field of Gin's writer for the writer below it. Gin has no function that
// replaces that one, but its field is exported, as the same field is in writers of middleware,
// which embed a gin.ResponseWriter.
func belowGin(w gin.ResponseWriter) reflect.Value {
	for {
		v := reflect.Indirect(reflect.ValueOf(w))
		if v.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		field := v.FieldByName("ResponseWriter")
		if !field.IsValid() || !field.CanInterface() {
			return reflect.Value{}
		}
		switch below := field.Interface().(type) {
		case gin.ResponseWriter:
			w = below
		case http.ResponseWriter:
			if v.Type().PkgPath() != reflect.TypeFor[gin.Context]().PkgPath() || !field.CanSet() {
				return reflect.Value{}
			}
			return field
		default:
			return reflect.Value{}
		}
	}
}
