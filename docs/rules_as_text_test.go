package docs_test

import (
	"fmt"

	"github.com/gin-gonic/gin"

	"github.com/routelimit/limit"
	"github.com/routelimit/limit/ginlimit"
)

func Example_rulesAsText() {
	router, rl := gin.New(), ginlimit.New(limit.New(nil, nil))
	update, health := okGin, okGin

	type api struct {
		Update gin.HandlerFunc `route:"POST /update" limit:"1/1m per ip; 1000/1m global"`
		Health gin.HandlerFunc `route:"GET /health" limit:"-"`
	}
	err := rl.Mount(router, api{Update: update, Health: health})

	fmt.Println(err, send(router, "POST", "/update").Code, send(router, "POST", "/update").Code, send(router, "GET", "/health").Code)
	// Output: <nil> 200 429 200
}
