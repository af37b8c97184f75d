# make demo    serve limited routes on http://127.0.0.1:8080
# make test    everything that a change must pass, in every module
# make lint    formatting, go vet, staticcheck
# make bench   benchmarks
# make fuzz    each fuzz test for FUZZTIME (10s)
# make proof   the long runs

FUZZTIME ?= 10s

.PHONY: demo test lint bench fuzz proof

demo:
	go run ./cmd/limitctl demo

test:
	scripts/test.sh

lint:
	scripts/lint.sh

bench:
	scripts/each.sh go test -run '^$$' -bench . -benchmem ./...

fuzz:
	scripts/fuzz.sh $(FUZZTIME)

proof:
	cd proof && go test -count=1 -timeout=2h ./...
