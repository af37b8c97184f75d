package rules

import (
	"math"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/routelimit/limit/core"
)

const day = 24 * time.Hour

func TestQuota(t *testing.T) {
	const minute = 60_000_000
	for text, want := range map[string]core.Quota{
		"100/1m per ip":                                 {Limit: 100, Window: minute},
		"100/1m per ip fixed-window aligned":            {Algorithm: core.FixedWindow, Limit: 100, Window: minute, Aligned: true},
		"100/1m per ip sliding-cells":                   {Algorithm: core.SlidingCells, Limit: 100, Window: minute, Cells: 10},
		"100/1m per ip sliding-cells cells 20":          {Algorithm: core.SlidingCells, Limit: 100, Window: minute, Cells: 20},
		"100/1m per ip sliding-counter":                 {Algorithm: core.SlidingCounter, Limit: 100, Window: minute},
		"100/1m per ip token-bucket":                    {Algorithm: core.TokenBucket, Limit: 100, Window: minute, Burst: 100},
		"100/1m per ip token-bucket burst 10 missing 3": {Algorithm: core.TokenBucket, Limit: 100, Window: minute, Burst: 10, Missing: 3},
		"100/1m per ip leaky-bucket":                    {Algorithm: core.LeakyBucket, Limit: 100, Window: minute, Burst: 100},
		"100/1m per ip queue":                           {Algorithm: core.Queue, Limit: 100, Window: minute},
		"100/1m per ip queue burst 9 wait 2s":           {Algorithm: core.Queue, Limit: 100, Window: minute, Burst: 9, MaxWait: 2_000_000},
		"100/30s per ip concurrency":                    {Algorithm: core.Concurrency, Limit: 100, Window: minute / 2},
		"100/month per ip zone UTC": {Algorithm: core.FixedWindow, Limit: 100, Window: 30 * 24 * 60 * minute,
			Calendar: core.Calendar{Unit: core.Month, Zone: time.UTC}},
		"100/week per ip zone UTC": {Algorithm: core.FixedWindow, Limit: 100, Window: 7 * 24 * 60 * minute,
			Calendar: core.Calendar{Unit: core.Week, Zone: time.UTC}},
	} {
		assert.Equal(t, want, MustParse(text).rules[0].Quota(), text)
	}
}

func TestCalendarNames(t *testing.T) {
	for text, want := range map[string]string{
		"5/month per user zone UTC": "per-user-month", "5/week global zone UTC": "global-week",
		"5/day per ip zone UTC": "per-ip-day", "5/hour per ip zone UTC": "per-ip-hour", "5/hour per ip": "per-ip-1h",
		"5/30s per user concurrency": "per-user-concurrency", "5/30s global concurrency": "global-concurrency",
		"a: 5/month per user zone UTC": "a", "5/1m per user token-bucket": "per-user-1m",
	} {
		assert.Equal(t, want, MustParse(text).rules[0].name(), text)
	}
}

// problemsOf returns what is wrong with a set.
func problemsOf(set Set) (list []string) {
	for _, err := range errorsOf(set.Validate()) {
		if err != nil {
			list = append(list, err.(*Error).Problem)
		}
	}
	return list
}

func TestAlgorithmProblems(t *testing.T) {
	rule := func(a Algorithm) Rule { return Rule{Key: ByIP, Limit: 100, Window: time.Minute, Algorithm: a} }
	with := func(a Algorithm, limit int64, window time.Duration) Rule {
		return Rule{Key: ByIP, Limit: limit, Window: window, Algorithm: a}
	}
	daily := core.Calendar{Unit: core.Day, Zone: time.UTC}
	type foreign struct{ TokenBucket }
	const value = ": write a value of package limit, such as limit.TokenBucket{Burst: 5}, and no pointer"
	for _, test := range []struct {
		rule Rule
		want []string
	}{
		{with(FixedWindow{}, core.MaxLimit, time.Minute), nil},
		{with(SlidingCells{}, core.MaxLimit, time.Minute), nil},
		{with(FixedWindow{Calendar: daily}, 100, 0), nil},
		{with(FixedWindow{Calendar: daily}, 100, 24*time.Hour), nil},
		{rule(nil), nil},

		{with(FixedWindow{}, core.MaxLimit+1, time.Minute), []string{"limit 1000000000001: write at most 1000000000000"}},
		{with(TokenBucket{}, math.MaxInt64, time.Minute), []string{"limit 9223372036854775807: write at most 1000000000000"}},
		{with(TokenBucket{}, -1, time.Minute), []string{"limit -1: write at least 1"}},
		{rule(TokenBucket{Burst: -1, Missing: -1}), []string{
			"burst -1: write 1 to 1000000000000", "-1 missing: write 0 for a full bucket to -1 for an empty one"}},
		{rule(TokenBucket{Missing: 101}), []string{"101 missing: write 0 for a full bucket to 100 for an empty one"}},
		{rule(TokenBucket{Burst: core.MaxLimit}), []string{
			"burst 1000000000000 takes more than 10 years to come back: write a smaller one"}},
		{rule(Queue{Burst: -1, MaxWait: -time.Second}), []string{
			"burst -1: write how many may wait, 0 to 1000000000000", "wait of -1s: write 0 for any, or at most 366 days"}},
		{rule(Queue{MaxWait: 1500}), []string{"wait 1.5µs: write a whole number of microseconds"}},
		{rule(SlidingCells{Cells: 61}), []string{"61 cells: write 2 to 60"}},
		{with(Concurrency{}, core.MaxLeases, time.Second), nil},
		{with(Concurrency{}, core.MaxLeases+1, time.Second-1000), []string{
			"window 999.999ms: it is how long a lease lives that is not renewed: write at least 1s",
			"limit 10001 is too large for concurrency, which lists each lease: write at most 10000, or a key that fewer share"}},
		{rule(&TokenBucket{Burst: -1}), []string{"algorithm *limit.TokenBucket" + value}},
		{rule((*Distinct)(nil)), []string{"algorithm *limit.Distinct" + value}},
		{rule(foreign{}), []string{"algorithm limit.foreign" + value}},
		{rule(FixedWindow{Calendar: daily}), []string{"window 1m0s: leave it out, since the calendar says it"}},
		{rule(FixedWindow{Calendar: core.Calendar{Unit: core.Day}}), []string{
			"window 1m0s: leave it out, since the calendar says it", "calendar without a time zone: write one, such as time.UTC"}},
		{with(FixedWindow{Calendar: core.Calendar{Unit: 5, Zone: time.UTC}}, 100, 0), []string{
			"calendar unit 5: write Hour, Day, Week or Month"}},
		{with(FixedWindow{Aligned: true, Calendar: daily}, 100, 0), []string{
			"aligned and calendar: write one of them"}},
		// All of it at once, and nothing twice.
		{Rule{Algorithm: SlidingCells{Cells: 1}}, []string{
			"no key: write which requests share the quota, such as Key: limit.ByIP",
			"limit 0: write at least 1",
			"window 0s: write at least 1ms (the window comes first, then the limit)",
			"1 cells: write 2 to 60"}},
	} {
		assert.ElementsMatch(t, test.want, problemsOf(Rules(test.rule)), test.rule.String())
	}
}

var (
	freeCost = CostBy("units", func(*http.Request) int64 { return 0 })
)

// TestEqualAttributes checks that no attribute is forgotten where one policy is
// declared twice.
func TestEqualAttributes(t *testing.T) {
	berlin, again := zone(t, "Europe/Berlin"), zone(t, "Europe/Berlin")
	require.NotSame(t, berlin, again)
	base := Rule{Name: "a", Key: ByIP, Limit: 10, Window: time.Minute}
	untouched := reflect.VisibleFields(reflect.TypeFor[Rule]())
	options := make(map[string]bool) // the fields of algorithms, and whether a change sets them
	for a := range core.Algorithms() {
		if kind := reflect.TypeOf(algorithmOf(&core.Quota{Algorithm: core.Algorithm(a)}, KeyResolver{})); kind != nil {
			for _, f := range reflect.VisibleFields(kind) {
				options[kind.Name()+"."+f.Name] = false
			}
		}
	}
	for _, change := range []func(*Rule){
		func(r *Rule) { r.Name = "b" },
		func(r *Rule) { r.Key = ByUser },
		func(r *Rule) { r.Limit = 11 },
		func(r *Rule) { r.Window = time.Hour },
		func(r *Rule) { r.Algorithm = FixedWindow{} },
		func(r *Rule) { r.Algorithm = TokenBucket{Burst: 9} },
		func(r *Rule) { r.Algorithm = TokenBucket{Missing: 9} },
		func(r *Rule) { r.Algorithm = SlidingCells{Cells: 9} },
		func(r *Rule) { r.Algorithm = LeakyBucket{Burst: 9} },
		func(r *Rule) { r.Algorithm = Queue{Burst: 9} },
		func(r *Rule) { r.Algorithm = Queue{MaxWait: time.Second} },
		func(r *Rule) { r.Algorithm = FixedWindow{Aligned: true} },
		func(r *Rule) { r.Algorithm = FixedWindow{Calendar: core.Calendar{Unit: core.Day}} },
		func(r *Rule) { r.Algorithm = FixedWindow{Calendar: core.Calendar{Zone: berlin}} },
		func(r *Rule) { r.OnStoreError = core.Allow },
		func(r *Rule) { r.Algorithm = Ban{Bar: time.Hour} },
		func(r *Rule) { r.Algorithm = Ban{MaxBar: time.Hour} },
		func(r *Rule) { r.Algorithm = Distinct{Values: ByQuery("user")} },
		func(r *Rule) { r.Cost = freeCost },
		func(r *Rule) { r.Settle = OnStatus(401) },
		func(r *Rule) { r.OnRefusal.Wait = time.Second },
		func(r *Rule) { r.OnRefusal.Waiters = 9 },
		func(r *Rule) { r.OnRefusal.Status = 503 },
		func(r *Rule) { r.OnRefusal.Redirect = "/busy" },
		func(r *Rule) { r.OnRefusal.Degrade = true },
		func(r *Rule) { r.OnRefusal.Fallback = http.RedirectHandler("/", http.StatusSeeOther) },
		func(r *Rule) { r.OnRefusal.Mark = true },
		func(r *Rule) { r.Debt = 5 },
		func(r *Rule) { r.Message = "Later." },
		func(r *Rule) { r.Shadow = new(Shadow) },
		func(r *Rule) { r.Shadow = &Shadow{Enforced: 9} },
		func(r *Rule) { r.Shadow = &Shadow{Replaces: "b"} },
		func(r *Rule) { r.Hidden = true },
		func(r *Rule) { r.Attempts = true },
		func(r *Rule) { r.Plans = map[string]int64{"pro": 11} },
		func(r *Rule) { r.Reserve = map[string]int64{"critical": 1} },
		func(r *Rule) { r.Exempt = []string{"user root"} },
	} {
		changed := base
		change(&changed)
		if a := reflect.ValueOf(changed.Algorithm); a.IsValid() {
			for _, f := range reflect.VisibleFields(a.Type()) {
				if !a.FieldByIndex(f.Index).IsZero() {
					options[a.Type().Name()+"."+f.Name] = true
				}
			}
		}
		assert.False(t, base.equal(changed), "%#v", changed)
		assert.True(t, changed.equal(changed), "%#v", changed)
		untouched = slices.DeleteFunc(untouched, func(f reflect.StructField) bool {
			return !reflect.DeepEqual(reflect.ValueOf(changed).FieldByIndex(f.Index).Interface(),
				reflect.ValueOf(base).FieldByIndex(f.Index).Interface())
		})
	}
	assert.Empty(t, untouched)
	for option, changed := range options {
		assert.True(t, changed, option)
	}
	pair := func(a, b func(*Rule)) (Rule, Rule) {
		x, y := base, base
		a(&x)
		b(&y)
		return x, y
	}
	calendar := func(zone *time.Location) func(*Rule) {
		return func(r *Rule) {
			r.Window, r.Algorithm = 0, FixedWindow{Calendar: core.Calendar{Unit: core.Month, Zone: zone}}
		}
	}
	for want, rules := range map[bool][][2]func(*Rule){
		true: {
			{calendar(berlin), calendar(again)},
			{calendar(berlin), func(r *Rule) { calendar(berlin)(r); r.Window = 30 * day }},
			{func(r *Rule) { r.Algorithm = TokenBucket{} }, func(r *Rule) { r.Algorithm = TokenBucket{Burst: 10} }},
			{func(r *Rule) { r.Algorithm = SlidingCells{} }, func(r *Rule) { r.Algorithm = SlidingCells{Cells: 10} }},
			{func(*Rule) {}, func(r *Rule) { r.Algorithm = SlidingLog{} }},
			{func(r *Rule) { r.Name = "" }, func(r *Rule) { r.Name = "per-ip-1m" }},
		},
		false: {
			{calendar(berlin), calendar(time.UTC)},
			{calendar(time.FixedZone("here", 1)), calendar(time.FixedZone("here", 2))},
		},
	} {
		for _, two := range rules {
			a, b := pair(two[0], two[1])
			assert.Equal(t, want, a.equal(b), "%v %v", a, b)
		}
	}
}
