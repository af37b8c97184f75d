package accesslog

import (
	"bytes"
	"math"
	"strconv"
)

const (
	second  = int64(1_000_000)         // in microseconds
	minTime = -62_167_219_200 * second // the year 0
	maxTime = 253_402_300_800 * second // the year 10000
)

// digits2 returns the number of two digits, or -1.
func digits2(b []byte, at int) int {
	high, low := b[at]-'0', b[at+1]-'0'
	if high > 9 || low > 9 {
		return -1
	}
	return int(high)*10 + int(low)
}

// unix returns the seconds since the epoch of a time in UTC, or false if a part is out
// of range.
func unix(year, month, day, hour, minute, sec int) (int64, bool) {
	if year < 0 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) ||
		hour < 0 || hour > 23 || minute < 0 || minute > 59 || sec < 0 || sec > 60 {
		return 0, false
	}
	// Days of a year that begins in March, so that its leap day is its last.
	y, m := int64(year), int64(month)
	if m <= 2 {
		y--
		m += 12
	}
	era := y / 400
	if y < 0 {
		era = -1
	}
	ofEra := y - era*400
	ofYear := (153*(m-3)+2)/5 + int64(day) - 1
	days := era*146_097 + ofEra*365 + ofEra/4 - ofEra/100 + ofYear - 719_468
	return ((days*24+int64(hour))*60+int64(minute))*60 + int64(sec), true
}

func daysIn(year, month int) int {
	switch month {
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// month returns the number of an English month of three letters, or 0.
func month(b []byte) int {
	switch string(b) {
	case "Jan":
		return 1
	case "Feb":
		return 2
	case "Mar":
		return 3
	case "Apr":
		return 4
	case "May":
		return 5
	case "Jun":
		return 6
	case "Jul":
		return 7
	case "Aug":
		return 8
	case "Sep":
		return 9
	case "Oct":
		return 10
	case "Nov":
		return 11
	case "Dec":
		return 12
	}
	return 0
}

// clfTime reads "10/Oct/2000:13:55:36 -0700", and the form of HAProxy with milliseconds
// and without a zone, which is then UTC: "06/Feb/2009:12:14:14.655".
func clfTime(b []byte) (int64, bool) {
	if len(b) < 20 || b[2] != '/' || b[6] != '/' || b[11] != ':' || b[14] != ':' || b[17] != ':' {
		return 0, false
	}
	high, low := digits2(b, 7), digits2(b, 9)
	if high < 0 || low < 0 {
		return 0, false
	}
	s, ok := unix(high*100+low, month(b[3:6]), digits2(b, 0), digits2(b, 12), digits2(b, 15), digits2(b, 18))
	if !ok {
		return 0, false
	}
	return fractionAndZone(s, b[20:])
}

// isoTime reads RFC 3339, also with a space before the time and the zone, with a comma,
// and without a zone, which is then UTC.
func isoTime(b []byte) (int64, bool) {
	if len(b) < 19 || b[4] != '-' || b[7] != '-' || b[10] != 'T' && b[10] != 't' && b[10] != ' ' || b[13] != ':' || b[16] != ':' {
		return 0, false
	}
	high, low := digits2(b, 0), digits2(b, 2)
	if high < 0 || low < 0 {
		return 0, false
	}
	s, ok := unix(high*100+low, digits2(b, 5), digits2(b, 8), digits2(b, 11), digits2(b, 14), digits2(b, 17))
	if !ok {
		return 0, false
	}
	return fractionAndZone(s, b[19:])
}

// fractionAndZone adds to s seconds what follows them.
func fractionAndZone(s int64, b []byte) (int64, bool) {
	micros := int64(0)
	if len(b) > 0 && (b[0] == '.' || b[0] == ',') {
		i, unit := 1, second/10
		for ; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
			micros += int64(b[i]-'0') * unit
			unit /= 10
		}
		if i == 1 {
			return 0, false
		}
		b = b[i:]
	}
	if len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	switch {
	case len(b) == 0, len(b) == 1 && (b[0] == 'Z' || b[0] == 'z'):
	case len(b) == 5 && (b[0] == '+' || b[0] == '-'), len(b) == 6 && (b[0] == '+' || b[0] == '-') && b[3] == ':':
		hours, minutes := digits2(b, 1), digits2(b, len(b)-2)
		if hours < 0 || hours > 23 || minutes < 0 || minutes > 59 {
			return 0, false
		}
		offset := int64(hours*60+minutes) * 60
		if b[0] == '-' {
			offset = -offset
		}
		s -= offset
	default:
		return 0, false
	}
	return inRange(s*second + micros)
}

func inRange(micros int64) (int64, bool) { return micros, micros >= minTime && micros < maxTime }

// anyTime reads a time by its form: RFC 3339, that of the common log format, or a number
// of seconds, milliseconds, microseconds or nanoseconds since the epoch, by its size.
func anyTime(b []byte) (int64, bool) {
	switch {
	case len(b) > 10 && b[4] == '-':
		return isoTime(b)
	case len(b) > 10 && b[2] == '/':
		return clfTime(b)
	}
	return unixTime(b)
}

func unixTime(b []byte) (int64, bool) {
	whole, fraction := b, []byte(nil)
	if i := bytes.IndexByte(b, '.'); i >= 0 {
		whole, fraction = b[:i], b[i+1:]
	}
	n, ok := number(whole)
	if !ok && len(whole) == 19 { // nanoseconds
		if n, ok = number(whole[:16]); ok {
			return inRange(n)
		}
	}
	if !ok || len(whole) == 0 || whole[0] == '-' || !allDigits(fraction) {
		return floatTime(b)
	}
	switch {
	case n < 1e11:
		micros := int64(0)
		for i, unit := 0, second/10; i < len(fraction) && unit > 0; i, unit = i+1, unit/10 {
			micros += int64(fraction[i]-'0') * unit
		}
		return inRange(n*second + micros)
	case n < 1e14:
		return inRange(n * 1000)
	case n < 1e17:
		return inRange(n)
	}
	return inRange(n / 1000)
}

func allDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// floatTime reads seconds with an exponent or a sign.
func floatTime(b []byte) (int64, bool) {
	if len(b) > 32 {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) > 1e12 {
		return 0, false
	}
	return inRange(int64(math.Round(f * float64(second))))
}
