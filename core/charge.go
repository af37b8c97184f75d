package core

// A Charge is one rule applied to one request. It is all that a store sees. Policy, Rule, Variant
// and Key name the quota, and may be any bytes, or empty: charges with the same four share it.
type Charge struct {
	Policy  string // whose rule it is
	Rule    string // the name of the rule
	Variant string // sets apart the states of one rule, such as those of callers on different plans; usually empty
	Key     string // of the client, or empty for all requests
	Quota   Quota
	Cost    int64 // units; 0 looks without taking, and fits unless the rule is a [Ban]

	// Reserve is how many units the charge must leave to others: it fits if there is room for Cost
	// and Reserve, and takes Cost. A Cost of 0 always fits. It is for requests that must not use
	// the last part of a limit. [Ban] and [Distinct] cannot have it.
	Reserve int64

	// Debt makes the charge one for units that were used already, Age µs before the
	// decision: what a process admitted while the store was away, or what something
	// turned out to cost. It is taken whatever is left, and even above the limit, as if it
	// had been taken then. It never refuses, and a [Queue] does not delay it. Where an
	// algorithm cannot know the exact state, it leaves less room, not more; its Owe
	// method has the exceptions. All charges of a call are debts, or none.
	Debt bool
	Age  int64 // 0 to [MaxTime]; only with Debt

	// MaxDebt bounds a Debt, where the algorithm is one that [Algorithm.Owes]: the key ends
	// at most so many units above the limit, and the rest of Cost is forgiven, see
	// [Decision].Forgiven. 0 means no bound. Without Debt it has no effect.
	MaxDebt int64

	// Since, if not 0, is how many µs ago the last of the units were used. A reset of the
	// key since then cancels the debt, if another process may have made it. It is more than
	// Age where a bucket is charged for what it lacks now.
	Since int64

	// ID says what the charge is for, where the algorithm is [Quota.Identified]: for
	// [Concurrency] the lease that holds its units, needed for a Cost above 0; for
	// [Distinct] the value that is shown, 0 for none. Others ignore it.
	ID uint64

	// OnError says what to do if the store fails. Stores ignore it; package
	// guard, which wraps a store, applies it.
	OnError OnError
}

// SameState reports whether c and d are charges on the same state: of the same policy,
// rule and variant. Their keys may differ.
func (c *Charge) SameState(d *Charge) bool {
	return c.Rule == d.Rule && c.Variant == d.Variant && c.Policy == d.Policy
}

// An Ask is one decision that a store is asked to make.
type Ask struct {
	// Charges are taken together, or none of them is. They are on different states: see
	// [Charge.SameState].
	Charges []Charge

	// Decision is what the store has decided. Take sets it.
	Decision Decision
}

// Owes reports whether the charges of a valid ask are debts.
func (a *Ask) Owes() bool { return len(a.Charges) > 0 && a.Charges[0].Debt }
