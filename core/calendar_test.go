package core

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata" // the tables below must not depend on the machine

	"github.com/routelimit/limit/internal/race"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestCalendarPeriods(t *testing.T) {
	for _, test := range []struct {
		zone             string
		unit             CalendarUnit
		now, from, until string // RFC 3339
		why              string
	}{
		{"UTC", Month, "2024-02-29T12:00:00Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z", "a leap year"},
		{"UTC", Month, "2025-12-31T23:59:59.999999Z", "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z", "the end of a year"},
		{"UTC", Week, "2026-01-01T00:00:00Z", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", "weeks begin on Monday"},
		{"UTC", Week, "2026-01-04T23:59:59Z", "2025-12-29T00:00:00Z", "2026-01-05T00:00:00Z", "and end with Sunday"},
		{"UTC", Week, "2026-01-05T00:00:00Z", "2026-01-05T00:00:00Z", "2026-01-12T00:00:00Z", "the first moment is in it"},

		{"Europe/Berlin", Day, "2025-03-30T12:00:00+02:00", "2025-03-30T00:00:00+01:00", "2025-03-31T00:00:00+02:00", "23 hours"},
		{"Europe/Berlin", Day, "2025-10-26T12:00:00+01:00", "2025-10-26T00:00:00+02:00", "2025-10-27T00:00:00+01:00", "25 hours"},
		{"Europe/Berlin", Hour, "2025-03-30T01:59:59+01:00", "2025-03-30T01:00:00+01:00", "2025-03-30T03:00:00+02:00", "before the missing hour"},
		{"Europe/Berlin", Hour, "2025-10-26T02:30:00+02:00", "2025-10-26T02:00:00+02:00", "2025-10-26T02:00:00+01:00", "the hour that comes twice"},
		{"Europe/Berlin", Hour, "2025-10-26T02:30:00+01:00", "2025-10-26T02:00:00+01:00", "2025-10-26T03:00:00+01:00", "its second time"},
		{"Europe/Berlin", Week, "2025-03-30T12:00:00+02:00", "2025-03-24T00:00:00+01:00", "2025-03-31T00:00:00+02:00", "an hour less"},
		{"Europe/Berlin", Month, "2025-10-31T23:30:00+01:00", "2025-10-01T00:00:00+02:00", "2025-11-01T00:00:00+01:00", "an hour more"},
		{"America/New_York", Hour, "2040-12-31T18:20:00-05:00", "2040-12-31T18:00:00-05:00", "2040-12-31T19:00:00-05:00", "the last day of a leap year"},

		{"America/Sao_Paulo", Day, "2018-11-04T12:00:00-02:00", "2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00", "midnight is missing"},
		{"America/Sao_Paulo", Day, "2018-11-03T23:59:59-03:00", "2018-11-03T00:00:00-03:00", "2018-11-04T01:00:00-02:00", "the day before that"},
		{"America/Sao_Paulo", Day, "2018-02-17T23:30:00-03:00", "2018-02-17T00:00:00-02:00", "2018-02-18T00:00:00-03:00", "23h comes twice"},
		{"America/Havana", Day, "2024-11-03T00:30:00-05:00", "2024-11-03T00:00:00-04:00", "2024-11-04T00:00:00-05:00", "midnight comes twice"},
		{"Asia/Beirut", Day, "2024-03-31T01:00:00+03:00", "2024-03-31T01:00:00+03:00", "2024-04-01T00:00:00+03:00", "midnight is missing"},
		{"Asia/Gaza", Month, "2004-10-01T00:30:00+02:00", "2004-10-01T00:00:00+03:00", "2004-11-01T00:00:00+02:00", "back to 0h at 1h"},
		{"Antarctica/Vostok", Day, "2023-12-18T00:30:00+05:00", "2023-12-18T00:00:00+07:00", "2023-12-19T00:00:00+05:00", "back to 0h at 2h"},
		{"America/St_Johns", Day, "2010-11-06T23:30:00-03:30", "2010-11-06T00:00:00-02:30", "2010-11-07T00:00:00-03:30", "back over midnight after a minute"},
		{"America/St_Johns", Day, "2010-11-07T00:00:30-02:30", "2010-11-06T00:00:00-02:30", "2010-11-07T00:00:00-03:30", "the minute before"},
		{"America/St_Johns", Day, "2010-11-07T00:00:00-03:30", "2010-11-07T00:00:00-03:30", "2010-11-08T00:00:00-03:30", "the second midnight"},
		{"America/St_Johns", Month, "2009-10-31T23:30:00-03:30", "2009-10-01T00:00:00-02:30", "2009-11-01T00:00:00-03:30", "the same of a month"},
		{"Antarctica/Casey", Day, "2010-03-04T23:30:00+08:00", "2010-03-05T00:00:00+11:00", "2010-03-06T00:00:00+08:00", "back after two hours"},

		{"Australia/Lord_Howe", Hour, "2025-04-06T01:40:00+11:00", "2025-04-06T01:00:00+11:00", "2025-04-06T01:30:00+10:30", "back by half an hour"},
		{"Australia/Lord_Howe", Hour, "2025-04-06T01:40:00+10:30", "2025-04-06T01:30:00+10:30", "2025-04-06T02:00:00+10:30", "and what is left of it"},
		{"Australia/Lord_Howe", Hour, "2025-10-05T02:40:00+11:00", "2025-10-05T02:30:00+11:00", "2025-10-05T03:00:00+11:00", "on by half an hour"},
		{"Asia/Kathmandu", Hour, "2025-01-01T10:20:00+05:45", "2025-01-01T10:00:00+05:45", "2025-01-01T11:00:00+05:45", "quarters of an hour"},

		{"Pacific/Apia", Day, "2011-12-29T23:00:00-10:00", "2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00", "a day is skipped"},
		{"Pacific/Apia", Week, "2011-12-31T00:00:00+14:00", "2011-12-26T00:00:00-10:00", "2012-01-02T00:00:00+14:00", "a week of six days"},
		{"Pacific/Kiritimati", Month, "2025-01-31T23:59:59+14:00", "2025-01-01T00:00:00+14:00", "2025-02-01T00:00:00+14:00", "UTC+14"},
	} {
		at := func(text string) int64 {
			moment, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			return moment.UnixMicro()
		}
		z := zone(t, test.zone)
		from, until := Calendar{test.unit, z}.Period(at(test.now))
		if from != at(test.from) || until != at(test.until) {
			t.Errorf("%s, unit %d, %s (%s):\ngot  %v to %v\nwant %s to %s", test.zone, test.unit, test.now, test.why,
				time.UnixMicro(from).In(z), time.UnixMicro(until).In(z), test.from, test.until)
		}
	}
}

// TestCalendarTiles tests that every moment is in one period, and that periods
// follow one another without a gap, everywhere that clocks do something unusual.
func TestCalendarTiles(t *testing.T) {
	race.Skip(t)
	random := rand.New(rand.NewPCG(1, 1))
	end := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	for _, name := range []string{
		"UTC", "Europe/Berlin", "Europe/Dublin", "Africa/Casablanca", "America/New_York", "America/Sao_Paulo",
		"America/Havana", "America/St_Johns", "America/Goose_Bay", "Antarctica/Casey", "Antarctica/Vostok",
		"Asia/Beirut", "Asia/Gaza", "Asia/Kathmandu", "Asia/Tehran", "Australia/Lord_Howe", "Africa/Monrovia",
		"Pacific/Apia", "Pacific/Kiritimati", "Pacific/Kwajalein", "Pacific/Chatham",
	} {
		z := zone(t, name)
		changes := offsetChanges(z)
		for unit := Hour; unit <= Month; unit++ {
			for range 2_000 {
				checkTile(t, Calendar{unit, z}, random.Int64N(end))
			}
			for _, change := range changes {
				for _, off := range []int64{-90_000, -3600, -1800, -60, 0, 60, 1800, 3600, 90_000} {
					checkTile(t, Calendar{unit, z}, (change+off)*1_000_000)
					checkTile(t, Calendar{unit, z}, (change+off)*1_000_000-1)
				}
			}
			if t.Failed() {
				t.Fatalf("in %s, unit %d", name, unit)
			}
		}
	}
}

// offsetChanges returns when the offset of a zone changes, and the last day of
// leap years, about which package time is mistaken.
func offsetChanges(z *time.Location) (changes []int64) {
	offset := func(at int64) int { _, o := time.Unix(at, 0).In(z).Zone(); return o }
	const step = 6 * 3600
	for at := int64(step); at < 131*8766*3600; at += step {
		low, high := at-step, at
		if offset(low) == offset(high) {
			continue
		}
		for high-low > 1 {
			if middle := (low + high) / 2; offset(middle) == offset(at-step) {
				low = middle
			} else {
				high = middle
			}
		}
		changes = append(changes, high)
	}
	for year := 1972; year < 2100; year += 4 {
		changes = append(changes, time.Date(year, 12, 31, 12, 0, 0, 0, time.UTC).Unix())
	}
	return changes
}

func checkTile(t *testing.T, c Calendar, now int64) {
	t.Helper()
	from, until := c.Period(now)
	_, before := c.Period(from - 1)
	after, _ := c.Period(until)
	first, _ := c.Period(from)
	last, _ := c.Period(until - 1)
	if from > now || now >= until || before != from || after != until || first != from || last != from {
		t.Errorf("%v, unit %d: from %d until %d; that before ends at %d, that after begins at %d",
			time.UnixMicro(now).In(c.Zone), c.Unit, from, until, before, after)
	}
}
