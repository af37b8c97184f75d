package core

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/routelimit/limit/internal/race"
)

// zoneNames returns a name of each zone that Go knows.
func zoneNames(t *testing.T) (names []string) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip(err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Skip(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[uint32]bool)
	for _, f := range archive.File {
		if f.Mode().IsRegular() && !seen[f.CRC32] { // the names of one zone have the same file
			seen[f.CRC32] = true
			names = append(names, f.Name)
		}
	}
	return names
}

// dates are the dates of a zone by their definition. They are those that its
// clocks show, except where clocks are set back over midnight. There a date is
// shown, then the day before again, and then the date again. Whichever of the
// first two is shorter counts as the other.
type dates struct {
	zone    *time.Location
	changes []int64 // when the offset changes, in seconds
}

const dayLength = 24 * 3600

func (d *dates) local(at int64) int64 {
	_, offset := time.Unix(at, 0).In(d.zone).Zone()
	return at + int64(offset)
}

// of returns a date as the day of the Unix epoch.
func (d *dates) of(at int64) int64 {
	date := FloorDiv(d.local(at), dayLength)
	i, _ := slices.BinarySearch(d.changes, at-2*dayLength)
	for ; i < len(d.changes) && d.changes[i] <= at+2*dayLength; i++ {
		change := d.changes[i]
		before, after := d.local(change-1)+1, d.local(change)
		later, earlier := FloorDiv(before-1, dayLength), FloorDiv(after, dayLength)
		if later <= earlier {
			continue
		}
		shown, again := before-later*dayLength, later*dayLength-after
		switch {
		case shown < again && change-shown <= at && at < change:
			date = earlier
		case shown >= again && change <= at && at < change+again:
			date = later
		}
	}
	return date
}

// period returns the number of the day, week or month of a time.
func (d *dates) period(unit CalendarUnit, at int64) int64 {
	date := d.of(at)
	switch unit {
	case Week:
		return FloorDiv(date+3, 7) // 1970-01-01 was a Thursday
	case Month:
		year, month, _ := time.Unix(date*dayLength, 0).UTC().Date()
		return int64(year)*12 + int64(month)
	}
	return date
}

// TestCalendarAllZones compares periods with their definition around every change
// of the offset of every zone. The number of a period never falls, so that it is
// enough to look at both sides of the ends.
func TestCalendarAllZones(t *testing.T) {
	race.Skip(t)
	checked, wrong := 0, 0
	names := zoneNames(t)
	for i, name := range names {
		if testing.Short() && i%16 != 0 && name != "America/St_Johns" {
			continue
		}
		d := &dates{zone: zone(t, name)}
		d.changes = offsetChanges(d.zone)
		slices.Sort(d.changes)
		for _, change := range d.changes {
			for _, off := range []int64{-1, 0, 1_800, 86_400} {
				at := change + off
				if at < 0 {
					continue
				}
				for unit := Day; unit <= Month; unit++ {
					now := d.period(unit, at)
					from, until := Calendar{unit, d.zone}.Period(at * 1_000_000)
					checked++
					first, next := from/1_000_000, until/1_000_000
					if from%1_000_000 != 0 || until%1_000_000 != 0 || first > at || next <= at ||
						d.period(unit, first-1) >= now || d.period(unit, first) != now || d.period(unit, next-1) != now || d.period(unit, next) <= now {
						wrong++
						if wrong < 10 {
							t.Errorf("%v, unit %d: got %v until %v", time.Unix(at, 0).In(d.zone), unit,
								time.UnixMicro(from).In(d.zone), time.UnixMicro(until).In(d.zone))
						}
					}
				}
			}
		}
	}
	t.Logf("%d periods of %d zones compared, %d wrong", checked, len(names), wrong)
}
