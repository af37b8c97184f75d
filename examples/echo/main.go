// Command echo limits an Echo server: all of its routes together by rules in Go, and
// one route by rules in text.
package main

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/echolimit"
)

func main() {
	server := echo.New()
	rl := echolimit.New(limit.New(nil, nil))

	server.Use(rl.Limit(limit.Named("app",
		limit.PerIP(time.Second, 20),
		limit.Global(time.Minute, 10_000),
	)))
	server.POST("/update", func(c echo.Context) error {
		return c.String(http.StatusOK, "updated\n")
	})
	server.GET("/users/:id", func(c echo.Context) error {
		return c.String(http.StatusOK, "user "+c.Param("id")+"\n")
	}, rl.Limit(limit.MustParse("10/1s per path id; 100/1m per ip")))

	server.Logger.Fatal(server.Start("127.0.0.1:8080"))
}
