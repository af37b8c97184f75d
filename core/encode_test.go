package core

import (
	"reflect"
	"testing"
	"time"
)

// TestEncodeEveryField changes one field of a quota after the other: each changes the
// encoding, which is what is stored and hashed.
func TestEncodeEveryField(t *testing.T) {
	base := string((&Quota{}).Append(nil))
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Quota]()) {
		if len(field.Index) != 1 {
			continue
		}
		var q Quota
		switch v := reflect.ValueOf(&q).Elem().FieldByIndex(field.Index); v.Kind() {
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Struct:
			v.Set(reflect.ValueOf(Calendar{Unit: Month, Zone: time.UTC}))
		case reflect.Int64:
			v.SetInt(1)
		default:
			v.SetUint(1)
		}
		if string(q.Append(nil)) == base {
			t.Errorf("Quota.%s is not encoded", field.Name)
		}
	}
}
