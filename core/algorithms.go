package core

import (
	"fmt"
	"strconv"
)

// An Algorithm is a way to count. Its number is part of what stores keep and
// never changes. The constants are documented in the file of each algorithm.
type Algorithm uint8

// algorithms is the only list of them. A new one is a file in this package, one in package lua, and
// a row here. It must not call anything that reads the table.
var algorithms = [...]row{
	SlidingLog: {
		name: "sliding-log", state: func() State { return &Log{} },
		maxLimit: MaxLog, tooLarge: "is too large for an exact window, which logs each unit: write at most %d, " +
			"or use sliding-cells, whose windows are up to a cell longer",
		span: (*Quota).oneWindow,
	},
	FixedWindow: {
		name: "fixed-window", state: func() State { return &windowState{} }, owes: true,
		maxLimit: MaxLimit, fields: FieldAligned | FieldCalendar,
		span: (*Quota).twoWindows, // a calendar period may be longer than usual
	},
	SlidingCells: {
		name: "sliding-cells", state: func() State { return &cellsState{} },
		maxLimit: MaxLimit, fields: FieldCells,
		owes: true, span: (*Quota).windowAndCells,
	},
	SlidingCounter: {
		name: "sliding-counter", state: func() State { return &counterState{} },
		maxLimit: MaxLimit,
		span:     (*Quota).twoWindows,
	},
	TokenBucket: {
		name: "token-bucket", state: func() State { return &bucketState{} },
		maxLimit: MaxLimit, fields: FieldBurst | FieldMissing, minBurst: 1,
		refills: true, owes: true, span: (*Quota).refillTime,
	},
	LeakyBucket: {
		name: "leaky-bucket", state: func() State { return &bucketState{} },
		maxLimit: MaxLimit, fields: FieldBurst, minBurst: 1,
		refills: true, owes: true, span: (*Quota).refillTime,
	},
	Queue: {
		name: "queue", state: func() State { return &queueState{} },
		maxLimit: MaxLimit, fields: FieldBurst | FieldMaxWait,
		refills: true, queues: true, span: (*Quota).refillTime,
	},
	Concurrency: {
		name: "concurrency", state: func() State { return &leasesState{} },
		maxLimit: MaxLeases, tooLarge: "is too large for concurrency, which lists each lease: write at most %d, " +
			"or a key that fewer share",
		leases: true, identified: true, span: (*Quota).oneWindow, // since its last renewal
	},
	Ban: {
		name: "ban", state: func() State { return &banState{} },
		maxLimit: MaxStrikes, tooLarge: "is too large for a ban, which lists each strike: write at most %d",
		fields: FieldBar | FieldMaxBar,
		bars:   true, span: (*Quota).windowAndBars,
	},
	Distinct: {
		name: "distinct", state: func() State { return &distinctState{} },
		maxLimit: MaxValues, tooLarge: "is too large for distinct values, which are listed: write at most %d",
		identified: true, span: (*Quota).oneWindow,
	},
}

// A row says what sets an algorithm apart.
type row struct {
	name  string // the word in the text grammar
	state func() State

	maxLimit int64
	tooLarge string // what an error says about a larger one; "" for the usual words
	fields   Fields // the fields of Quota that it uses beside Limit and Window
	minBurst int64  // the smallest Burst, if it uses that

	refills bool // units come back one by one at Limit a Window, up to Capacity
	queues  bool // admitted units wait for their turn, and Capacity includes the one that passes
	leases  bool // units are held until they are released, renewed, or their Window ends
	owes    bool // settlements may take units above the limit: see Charge.MaxDebt
	bars    bool // refusals by other rules count, and a key may be barred: even a cost of 0 is refused then

	identified bool // charges carry an ID

	span func(*Quota) int64 // how long a unit matters: see Quota.Span
}

// unknown is the row of a number that is no algorithm.
var unknown = row{maxLimit: MaxLimit, fields: allFields, span: func(*Quota) int64 { return 0 }}

func (a Algorithm) row() *row {
	if int(a) < len(algorithms) {
		return &algorithms[a]
	}
	return &unknown
}

// Algorithms returns all algorithms in the order of their numbers.
func Algorithms() []Algorithm {
	list := make([]Algorithm, len(algorithms))
	for i := range list {
		list[i] = Algorithm(i)
	}
	return list
}

// String returns the word for a in the text grammar.
func (a Algorithm) String() string {
	if name := a.row().name; name != "" {
		return name
	}
	return "algorithm " + strconv.Itoa(int(a))
}

// ParseAlgorithm returns the algorithm of a word in the text grammar.
func ParseAlgorithm(word string) (a Algorithm, ok bool) {
	for i := range algorithms {
		if algorithms[i].name == word {
			return Algorithm(i), true
		}
	}
	return 0, false
}

// Fields returns the fields of a [Quota] that a uses beside Limit and Window.
// The others must be zero.
func (a Algorithm) Fields() Fields { return a.row().fields }

// Owes reports whether a [Charge] may have a MaxDebt.
func (a Algorithm) Owes() bool { return a.row().owes }

// MaxLimit returns the largest limit of a quota.
func (a Algorithm) MaxLimit() int64 { return a.row().maxLimit }

// NewState returns the state of a key that has never been charged. It panics if
// the algorithm is unknown, which [ValidateCharges] reports as an error.
func NewState(a Algorithm) State {
	state := a.row().state
	if state == nil {
		panic(fmt.Sprintf("core: %v has no state: validate charges before they are decided", a))
	}
	return state()
}
