// Command gin limits a route of a Gin engine: it is the program of the README.
package main

import (
	"log"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ginlimit"
)

func main() {
	router := gin.New()
	rl := ginlimit.New(limit.New(nil, nil)) // the quotas are in memory

	router.POST("/update", rl.Limit(limit.Rules(
		limit.PerIP(2*time.Second, 5),
		limit.Global(time.Minute, 1000),
	)), func(c *gin.Context) { c.String(http.StatusOK, "updated\n") })

	log.Fatal(router.Run("127.0.0.1:8080"))
}
