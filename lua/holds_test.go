package lua

import (
	"testing"

	"github.com/routelimit/limit/core"
)

// heldAsk has a charge that is held, and one that is not.
func heldAsk() core.Ask {
	list := leased(1)
	list[0], list[1] = list[1], list[0]
	return core.Ask{Charges: list}
}

// FuzzDecodeHeld gives the decoder replies that no script made.
func FuzzDecodeHeld(f *testing.F) {
	ask := heldAsk()
	rules := NewRules("limit", []core.Ask{ask})
	admitted := "\x00\x00\x00\x00\x00\x00\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x04" + "\x00\x00\x00\x00\x00\x00\x00\x07" + "\x00\x00\x00\x00\x00\x00\x00\x09" +
		"\x00\x00\x00\x00\x00\x00\x00\x04" + "\x00\x00\x00\x00\x00\x00\x00\x07" + "\x00\x00\x00\x00\x00\x00\x00\x09"
	f.Add(true, []byte{})
	f.Add(false, []byte(number(1000, 8)+number(0, 8)+number(1, 8)+number(0, 8)+admitted))
	f.Add(false, []byte(number(1000, 8)+number(0, 8)+number(1, 8)+number(1, 8)+number(2, 8)+number(1<<47, 8)+number(3, 8)+admitted))
	f.Add(false, []byte(number(1000, 8)+number(2, 8)+number(1, 8)+number(1<<62, 8)+admitted)) // three times that is less than 0
	f.Fuzz(func(t *testing.T, fits bool, data []byte) {
		a, h := heldAsk(), core.Hold{Life: core.MinHold}
		call := rules.Held("limit", "", 1, &a, &h, nil)
		if err := call.Decode(replyOf(data, fits, 11), &a, &h); err != nil {
			return
		}
		if h.Units[1] < 0 || h.Units[1] > core.MaxCost || h.Units[0] != 0 {
			t.Fatalf("%d units", h.Units)
		}
		for i := range h.Over {
			if err := core.ValidateSettlements(h.Over[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzDecodeSettlements gives the decoder replies that no script made.
func FuzzDecodeSettlements(f *testing.F) {
	f.Add(true, []byte{})
	f.Add(true, []byte(number(1, 8)+number(3, 8)+number(0, 8)+number(0, 8)+number(4, 8)))
	f.Add(true, []byte(number(-2, 8)))
	f.Add(true, []byte(number(1, 8)+number(-1, 8)))
	var list []core.Settlement
	for _, c := range charges("x", "y") {
		list = append(list, core.Settlement{Return: core.Return{Charge: c}})
	}
	call := NewSettlements("limit", "", 1, list, true, false)
	f.Fuzz(func(t *testing.T, fits bool, data []byte) {
		done, err := call.Decode(replyOf(data, fits, 8), list)
		if (err == nil) != (len(done) == 2) {
			t.Fatalf("%v, %v", done, err)
		}
		for _, d := range done {
			if min(d.Given, d.Taken, d.Forgiven) < 0 || max(d.Given, d.Taken, d.Forgiven) > core.MaxCost {
				t.Fatalf("%+v", d)
			}
		}
	})
}

// FuzzDecodeDebts gives the decoder replies that no script made.
func FuzzDecodeDebts(f *testing.F) {
	f.Add(true, []byte{})
	f.Add(true, []byte(number(1000, 8)+number(4, 8)+number(7, 8)+number(9, 8)+number(1, 8)))
	f.Add(true, []byte(number(1000, 8)+number(-1, 8)))
	f.Add(false, []byte(number(-1, 8)))
	list := charges("x", "y")
	call := NewDebts("limit", "", 1, list)
	f.Fuzz(func(t *testing.T, fits bool, data []byte) {
		d, forgiven, err := call.Decode(replyOf(data, fits, 9), list)
		if d.Allowed != (err == nil) || (err == nil) != (len(forgiven) == 2) {
			t.Fatalf("%+v, %d, %v", d, forgiven, err)
		}
		for i, o := range d.Outcomes() {
			if d.At < 0 || o.Remaining < 0 || o.Remaining > 5 || min(o.MoreAfter, o.ResetAfter) < 0 || max(o.MoreAfter, o.ResetAfter) > maxSpan {
				t.Fatalf("%+v", o)
			}
			if forgiven[i] < 0 || forgiven[i] > list[i].Cost {
				t.Fatalf("%d forgiven", forgiven)
			}
		}
	})
}
