package accesslog

import "math/rand/v2"

// A TestLine is a line of a format, and what it says.
type TestLine struct{ Text, Time, Client, User, Method, Path string }

// WriterFormats returns the formats that tests can write.
func WriterFormats() (names []string) {
	for _, w := range writers {
		names = append(names, w.format)
	}
	return names
}

// WriteTestLine writes a line in the format of a number in WriterFormats. Clients and
// users are few, and times are near the given one, which is in microseconds.
func WriteTestLine(format int, rnd *rand.Rand, micros int64, client, user, method, path string) TestLine {
	r := random(rnd)
	r.Time, r.Client, r.User, r.Method, r.Path = micros, client, user, method, path
	want := plainOf(r)
	if loses := writers[format].loses; loses != nil {
		loses(&want)
	}
	return TestLine{writers[format].write(r), want.Time, want.Client, want.User, want.Method, want.Path}
}
