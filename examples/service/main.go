// Command service is a Gin application with a login. It limits all requests by
// address, failed logins by address and by name, and a route by user:
// docs/login.md explains it. Run it with a JWT_SECRET of at least 32 bytes.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ginlimit"
	"github.com/routelimit/limit/rules"
	"github.com/routelimit/limit/stores/redisstore"
)

type service struct {
	secret []byte                           // signs tokens
	check  func(name, password string) bool // in a real service, by a password hash
}

func (s *service) routes(limiter *limit.Limiter) http.Handler {
	rl := ginlimit.New(limiter)
	rl.Caller.User = func(c *gin.Context) string { return c.GetString("user") }
	router := gin.New()
	router.Use(rl.Limit(limit.Named("application", limit.PerIP(time.Minute, 100))))

	failed := rules.OnStatus(http.StatusUnauthorized)
	device := limit.By("device", func(r *http.Request) string { return attemptOf(r).device })
	name := device.Or(limit.By("username", func(r *http.Request) string { return attemptOf(r).name }))
	router.POST("/login", s.readName, rl.Limit(limit.Rules(
		limit.Rule{Key: limit.ByIP, Limit: 5, Window: 15 * time.Minute, Settle: failed},
		limit.Rule{Key: name, Limit: 20, Window: time.Hour, Settle: failed},
	)), s.login)

	router.GET("/me", s.authenticate, rl.Limit(limit.Rules(limit.PerUser(time.Hour, 20))), func(c *gin.Context) {
		c.JSON(http.StatusOK, gin.H{"user": c.GetString("user")})
	})
	return router
}

type (
	credentials struct{ Name, Password string }
	attemptKey  struct{}
	attempt     struct{ name, device string } // device is the name if the client has logged in before, otherwise ""
)

func attemptOf(r *http.Request) attempt {
	a, _ := r.Context().Value(attemptKey{}).(attempt)
	return a
}

// readName puts the name from the body into the request's context.
func (s *service) readName(c *gin.Context) {
	body, err := io.ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, 4096))
	var posted credentials
	if err != nil || json.Unmarshal(body, &posted) != nil || strings.TrimSpace(posted.Name) == "" {
		c.AbortWithStatus(http.StatusBadRequest)
		return
	}
	a := attempt{name: strings.ToLower(strings.TrimSpace(posted.Name))} // one spelling for each account
	if cookie, _ := c.Cookie("device"); s.subject(cookie, "device") == a.name {
		a.device = a.name
	}
	c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), attemptKey{}, a))
	c.Request.Body = io.NopCloser(bytes.NewReader(body)) // for the handler
}

func (s *service) login(c *gin.Context) {
	var posted credentials
	name := attemptOf(c.Request).name
	if c.ShouldBindJSON(&posted) != nil || !s.check(name, posted.Password) {
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.SetSameSite(http.SameSiteStrictMode)
	c.SetCookie("device", s.token(name, "device", 90*24*time.Hour), 90*24*3600, "/login", "", true, true)
	c.JSON(http.StatusOK, gin.H{"token": s.token(name, "api", time.Hour)})
}

func (s *service) token(user, audience string, life time.Duration) string {
	token, _ := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Subject: user, Audience: jwt.ClaimStrings{audience}, ExpiresAt: jwt.NewNumericDate(time.Now().Add(life)),
	}).SignedString(s.secret) // fails only if the secret is no []byte
	return token
}

// subject returns the user of a valid token for an audience, or "".
func (s *service) subject(token, audience string) string {
	var claims jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return s.secret, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience(audience), jwt.WithExpirationRequired())
	if err != nil {
		return ""
	}
	return claims.Subject
}

// authenticate puts the user of a valid token into the context.
func (s *service) authenticate(c *gin.Context) {
	token, _ := strings.CutPrefix(c.GetHeader("Authorization"), "Bearer ")
	user := s.subject(token, "api")
	if user == "" {
		c.AbortWithStatus(http.StatusUnauthorized)
		return
	}
	c.Set("user", user)
}

func main() {
	proxy := netip.MustParsePrefix("10.0.0.5/32")
	flag.TextVar(&proxy, "proxy", proxy, "addresses of the proxy in front of the service")
	addr := flag.String("redis", "", "address of Redis, such as localhost:6379; without it the quotas are in memory")
	flag.Parse()
	s := &service{[]byte(os.Getenv("JWT_SECRET")), func(name, password string) bool { return name == "alice" && password == "secret" }}
	if len(s.secret) < 32 {
		log.Fatal("set JWT_SECRET to at least 32 random bytes")
	}

	options := &limit.Options{Proxies: limit.Proxies{Trusted: []netip.Prefix{proxy}}}
	limiter := limit.New(nil, options)
	if *addr != "" {
		client := redis.NewClient(&redis.Options{Addr: *addr})
		limiter = limit.New(redisstore.New(client, &redisstore.Options{Prefix: "service"}), options)
	}
	server := &http.Server{Addr: "127.0.0.1:8080", Handler: s.routes(limiter), ReadTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}
