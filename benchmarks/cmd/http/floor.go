package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/routelimit/limit/internal/response"
)

// byHand is the floor of a table: middleware for these two rules that is written for this benchmark. It
// takes the address, counts it and all requests, both or neither, sets the headers of limit, and leaves a
// record for handlers. It knows no other rule or store, and never forgets an address.
func byHand(perIP, global quota) func(http.Handler) http.Handler {
	policy := []string{perIP.policy() + ", " + global.policy()}
	var addresses sync.Map // of *counter
	everyone, base := new(counter), time.Now()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			found, ok := addresses.Load(host)
			if !ok {
				found, _ = addresses.LoadOrStore(host, new(counter))
			}
			mine, now := found.(*counter), time.Since(base)
			var left [2]int64
			mine.Lock()
			everyone.Lock()
			left[0], left[1] = mine.left(now, perIP), everyone.left(now, global)
			admitted := left[0] > 0 && left[1] > 0
			if admitted {
				mine.used++
				everyone.used++
				left[0]--
				left[1]--
			}
			wait := [2]int64{seconds(mine.began + perIP.window - now), seconds(everyone.began + global.window - now)}
			everyone.Unlock()
			mine.Unlock()

			w.Header()["Ratelimit-Policy"] = policy
			if !admitted {
				refuse(w, left, wait, perIP, global)
				return
			}
			s := new(seen)
			b := global.appendLeft(perIP.appendLeft(s.text[:0], left[0], wait[0]), left[1], wait[1])
			s.values[0] = unsafe.String(&b[0], len(b))
			w.Header()["Ratelimit"] = s.values[:]
			s.Context, s.left = r.Context(), left
			s.request = *r.WithContext(s)
			next.ServeHTTP(w, &s.request)
		})
	}
}

// refuse answers a request of an address that has nothing left.
func refuse(w http.ResponseWriter, left, wait [2]int64, perIP, global quota) {
	room := new(struct {
		values [2]string
		text   [64]byte
	})
	b := global.appendLeft(perIP.appendLeft(room.text[:0], left[0], wait[0]), left[1], wait[1])
	n := len(b)
	b = strconv.AppendInt(b, wait[0], 10)
	room.values[0], room.values[1] = unsafe.String(&b[0], n), unsafe.String(&b[n], len(b)-n)
	h := w.Header()
	h["Ratelimit"], h["Retry-After"] = room.values[:1:1], room.values[1:]
	h["Cache-Control"], h["Content-Type"], h["X-Content-Type-Options"] = response.NoStore, response.ProblemJSON, response.NoSniff
	w.WriteHeader(http.StatusTooManyRequests)
	buffer := buffers.Get().(*[]byte)
	*buffer = strconv.AppendInt(append((*buffer)[:0], documentStart...), wait[0], 10)
	*buffer = append(append(append(*buffer, documentMiddle...), perIP.name...), documentEnd...)
	_, _ = w.Write(*buffer)
	buffers.Put(buffer)
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

const (
	documentStart = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded",` +
		`"status":429,"detail":"Try again in `
	documentMiddle = ` s.","violated-policies":["`
	documentEnd    = `"]}` + "\n"
)

// A seen request is the record of an admitted request, and all that it leaves to handlers.
type seen struct {
	context.Context
	request http.Request
	left    [2]int64
	values  [1]string
	text    [64]byte
}

func (s *seen) Value(key any) any {
	if key == (seenKey{}) {
		return s
	}
	return s.Context.Value(key)
}

type seenKey struct{}

// A counter counts in windows that begin with their first request.
type counter struct {
	sync.Mutex
	began time.Duration
	used  int64
}

func (c *counter) left(now time.Duration, q quota) int64 {
	if now-c.began >= q.window {
		c.began, c.used = now, 0
	}
	return q.limit - c.used
}

// A quota is what a rule grants.
type quota struct {
	name   string
	limit  int64
	window time.Duration
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func (q quota) policy() string {
	policy := fmt.Sprintf("%q;q=%d", q.name, q.limit)
	if q.window%time.Second == 0 {
		policy += fmt.Sprintf(";w=%d", seconds(q.window))
	}
	return policy
}

func (q quota) appendLeft(b []byte, left, wait int64) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	b = strconv.AppendInt(append(append(append(b, '"'), q.name...), `";r=`...), left, 10)
	return strconv.AppendInt(append(b, ";t="...), wait, 10)
}
