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

// TestFieldsAgree sets one field after the other: its bit, its number and its name are in
// one place of the order.
func TestFieldsAgree(t *testing.T) {
	for i, q := range []Quota{{Burst: 1}, {Cells: 1}, {Missing: 1}, {MaxWait: 1}, {Bar: 1}, {MaxBar: 1}, {Aligned: true}, {Calendar: Calendar{Unit: Hour}}} {
		var numbers [fieldCount]int64
		numbers[i] = 1
		if q.set() != 1<<i || q.Numbers() != numbers {
			t.Errorf("%s: bits %b, numbers %v", fieldNames[i], q.set(), q.Numbers())
		}
	}
	if allFields != 1<<fieldCount-1 || len(fieldNames) != fieldCount {
		t.Error("the constants, the names and the count differ")
	}
}
