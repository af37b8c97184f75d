// Command nethttp limits the routes of a ServeMux by the tags of a struct.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/routelimit/limit"
)

type api struct {
	Update http.HandlerFunc `route:"POST /update" limit:"5/2s per ip; 1000/1m global"`
	User   http.HandlerFunc `route:"GET /users/{id}" limit:"10/1s per path id; 100/1m per ip"`
	Health http.HandlerFunc `route:"GET /health" limit:"-"`
}

func main() {
	mux := http.NewServeMux()
	err := limit.New(nil, nil).Mount(mux, api{
		Update: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "updated") },
		User:   func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "user %q\n", r.PathValue("id")) },
		Health: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") },
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", mux))
}
