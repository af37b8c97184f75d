package core

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
)

// TestQuotaAppend encodes random quotas, neighbors of them and pairs of them. Two
// encodings are the same only if the quotas are, and none begins another.
func TestQuotaAppend(t *testing.T) {
	known := make(map[string]Quota)
	var all [][]byte
	for i := range stories(5_000) {
		random := rand.New(rand.NewPCG(5, uint64(i)))
		algorithms := algorithmsBut()
		q := someQuota(t, random, algorithms[random.IntN(len(algorithms))])
		if random.IntN(2) == 0 { // any numbers, valid or not, small ones more often
			for _, n := range []*int64{&q.Limit, &q.Window, &q.Burst, &q.Cells, &q.Missing, &q.MaxWait, &q.Bar, &q.MaxBar} {
				if random.IntN(2) == 0 {
					*n = random.Int64() >> random.IntN(64)
				}
			}
			q.Aligned = random.IntN(2) == 0
		}
		if q.Calendar.Unit != 0 && random.IntN(2) == 0 {
			q.Calendar.Zone = time.FixedZone([]string{"", "a", "ab", "UTC"}[random.IntN(4)], random.IntN(4)*60)
		}
		b := q.Append([]byte("before"))
		if !bytes.HasPrefix(b, []byte("before")) || b[6] != quotaVersion {
			t.Fatalf("%q", b)
		}
		text := string(b[6:])
		if other, ok := known[text]; ok && !sameQuota(q, other) {
			t.Fatalf("%+v and %+v are both %q", q, other, text)
		}
		if _, ok := known[text]; !ok {
			known[text] = q
			all = append(all, b[6:])
		}
	}
	for i, a := range all[:min(len(all), 1_000)] {
		for j, b := range all {
			if i != j && bytes.HasPrefix(b, a) {
				t.Fatalf("%+v begins %+v", known[string(a)], known[string(b)])
			}
		}
	}
}

// sameQuota compares quotas whose zones may be copies of each other.
func sameQuota(a, b Quota) bool {
	if (a.Calendar.Zone == nil) != (b.Calendar.Zone == nil) {
		return false
	}
	if a.Calendar.Zone != nil {
		_, x := time.Unix(0, 0).In(a.Calendar.Zone).Zone()
		_, y := time.Unix(0, 0).In(b.Calendar.Zone).Zone()
		if x != y || a.Calendar.Zone.String() != b.Calendar.Zone.String() {
			return false
		}
	}
	a.Calendar.Zone, b.Calendar.Zone = nil, nil
	return a == b
}

// TestQuotaAppendStays holds the encoding, which is in names of stored keys.
func TestQuotaAppendStays(t *testing.T) {
	for want, q := range map[string]Quota{
		"\x01\x00\x0a\x80\x89\x7a\x00":                {Limit: 5, Window: 1_000_000},
		"\x01\x04\x02\x02\x01\x06\x03\x04\x00":        {Algorithm: 4, Limit: 1, Window: 1, Burst: 3, Missing: 2},
		"\x01\x01\x02\x02\x08\x04\x00\x00\x03\x00UTC": {Algorithm: 1, Limit: 1, Window: 1, Calendar: Calendar{Day, time.UTC}},
		"\x01\x01\x02\x02\x07\x02\x00":                {Algorithm: 1, Limit: 1, Window: 1, Aligned: true},
	} {
		if got := string(q.Append(nil)); got != want {
			t.Errorf("%+v: %q, want %q", q, got, want)
		}
	}
}
