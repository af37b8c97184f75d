package proof

import (
	"maps"
	"reflect"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/routelimit/limit/core"
)

// A step is one call of a client and its answer. Package core is the model of all
// algorithms: a store must answer as its pure functions do, at the times at which the
// store decided, in an order that is consistent with what the clients observed.
type step struct {
	asks    [][]core.Charge // of Take
	lease   *core.Charge    // to renew, or to release
	release bool
	returns []core.Return
	reset   *core.Charge
	holds   *heldIn
}

type stepped struct {
	at        int64 // when the store decided
	decisions []core.Decision
	held      bool
	returned  []core.Returned
	heldOut
}

// A world is the state of a store.
type world struct {
	states map[keyOfRule]core.State
	latest int64 // that the store has read of its clock
	holds  map[heldKey]heldUnits
}

type keyOfRule struct{ rule, key string }

// state returns a copy of the state of a key, which may be changed.
func (w *world) state(c *core.Charge) core.State {
	id := keyOfRule{c.Rule, c.Key}
	s := w.states[id]
	if s == nil {
		s = core.NewState(c.Quota.Algorithm)
	}
	w.states[id] = deepCopy(reflect.ValueOf(s)).Interface().(core.State)
	return w.states[id]
}

// expired returns the keys that a store may have dropped. This only shows if its clock
// steps back, as a clock does that is read before a lock.
func (w *world) expired() (ids []keyOfRule) {
	for id, s := range w.states {
		if s.Expires() <= w.latest {
			ids = append(ids, id)
		}
	}
	return ids
}

var allAlgorithms = porcupine.Model{
	Init: func() any { return world{} },
	Step: func(before, input, output any) (bool, any) {
		w, in, out := before.(world), input.(step), output.(stepped)
		w.latest = max(w.latest, out.at)
		ids := w.expired()
		for forgotten := range 1 << len(ids) {
			after := world{maps.Clone(w.states), w.latest, maps.Clone(w.holds)}
			if after.states == nil {
				after.states, after.holds = make(map[keyOfRule]core.State), make(map[heldKey]heldUnits)
			}
			for i, id := range ids {
				if forgotten&(1<<i) != 0 {
					delete(after.states, id)
				}
			}
			if after.step(&in, &out) {
				return true, after
			}
		}
		return false, w
	},
	Equal: reflect.DeepEqual,
}

// step applies a call to w, and reports whether the answer is the same.
func (w *world) step(in *step, out *stepped) bool {
	switch {
	case in.holds != nil:
		return w.stepHeld(in.holds, &out.heldOut, out.at)
	case in.returns != nil:
		for i := range in.returns {
			r := &in.returns[i]
			state, got := w.state(&r.Charge), out.returned[i]
			if state.Return(r, out.at) != got.Units || core.Look(out.at, r.Charge, state) != got.Outcome {
				return false
			}
		}
		return true
	case in.reset != nil:
		id := keyOfRule{in.reset.Rule, in.reset.Key}
		delete(w.states, id)
		maps.DeleteFunc(w.holds, func(k heldKey, _ heldUnits) bool { return k.keyOfRule == id })
		return true
	case in.lease != nil:
		c := in.lease
		leases := w.state(c)
		if in.release {
			leases.Release(&c.Quota, out.at, c.ID)
			return true
		}
		return leases.Renew(&c.Quota, out.at, c.ID) == out.held
	}
	for i, charges := range in.asks {
		states := make([]core.State, len(charges))
		for j := range charges {
			states[j] = w.state(&charges[j])
		}
		want, got := core.Decide(out.at, charges, states), &out.decisions[i]
		if got.At != out.at || want.Allowed != got.Allowed || want.Delay != got.Delay || !slices.Equal(want.Outcomes(), got.Outcomes()) {
			return false
		}
	}
	return true
}

// deepCopy copies a state, whose fields package core does not export.
func deepCopy(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	to.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			to.Set(reflect.New(v.Type().Elem()))
			to.Elem().Set(deepCopy(v.Elem()))
		}
	case reflect.Slice:
		if !v.IsNil() {
			to.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
			reflect.Copy(to, v)
		}
	case reflect.Struct:
		for i := range to.NumField() {
			field := to.Field(i)
			field = reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem() // even if it is not exported
			field.Set(deepCopy(field))
		}
	}
	return to
}
