package docs_test

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
)

// A mailer sends mails to a list of recipients.
type mailer struct{ mails *limit.Policy }

func newMailer(limiter *limit.Limiter) (*mailer, error) {
	tenant := limit.By("tenant", func(*http.Request) string { return "" }) // unused: the handler passes it to Serve
	mails, err := limiter.Policy(limit.Named("mails",
		limit.Per(tenant, time.Hour, 100),
		limit.PerIP(time.Minute, 60),
	))
	return &mailer{mails}, err
}

// ServeHTTP charges each rule a unit for each recipient.
func (m *mailer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var mail struct {
		Tenant string
		To     []string
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&mail)
	if err != nil || mail.Tenant == "" || len(mail.To) == 0 {
		http.Error(w, "write a tenant and recipients", http.StatusBadRequest)
		return
	}
	given := limit.Request{Keys: map[string]string{"tenant": mail.Tenant}, Cost: int64(len(mail.To))}
	err = m.mails.Serve(w, r, given, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for rule := range limit.DecisionFrom(r.Context()).Rules() {
			fmt.Fprintln(w, rule.Name, "has", rule.Remaining, "left")
		}
	}))
	if err != nil { // given is wrong; nothing has been written
		log.Print(err)
		http.Error(w, "internal error", http.StatusInternalServerError)
	}
}

func Example_inTheHandler() {
	limiter := limit.New(nil, nil)
	m, err := newMailer(limiter)
	if err != nil {
		log.Fatal(err)
	}

	bodies := limit.Rule{Key: limit.ByIP, Limit: 600, Window: time.Minute, Attempts: true}
	mux := http.NewServeMux()
	mux.Handle("POST /mails", limiter.Limit(limit.Rules(bodies))(m))

	router := gin.New() // Gin serves the same handler
	router.POST("/mails", gin.WrapH(m))
	for _, h := range []http.Handler{mux, router} {
		for _, to := range []string{`"ann", "bob"`, strings.Repeat(`"ann", `, 59) + `"bob"`} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", "/mails", strings.NewReader(`{"tenant": "acme", "to": [`+to+`]}`)))
			fmt.Println(w.Code, w.Header().Get("Retry-After"), strings.TrimSpace(w.Body.String()))
		}
	}
	// Output:
	// 200  per-tenant-1h has 98 left
	// per-ip-1m has 58 left
	// 429 60 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"Try again in 60 s.","violated-policies":["per-ip-1m"]}
	// 200  per-tenant-1h has 96 left
	// per-ip-1m has 56 left
	// 429 60 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"Try again in 60 s.","violated-policies":["per-ip-1m"]}
}
