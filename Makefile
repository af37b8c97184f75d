# make demo    serve limited routes on ADDR (127.0.0.1:8080)
# make test    everything that a change must pass, in every module
# make lint    formatting, go vet, staticcheck
# make tidy    go.mod, go.sum and go.work.sum of every module
# make measure the size of the repository: exported names, files, lines, folders, modules, functions; TREE=dir
#              measures another checkout
# make bench   benchmarks
# make fuzz    each fuzz test for FUZZTIME (10s), or so many times (1000000x)
# make faults  produce each fault that a limiter on Redis meets, and write docs/faults.md (three minutes)
# make proof   the long runs: PROOF_SECONDS (60) of load, KILLS (100) of processes that hold leases,
#              SCHEDULES (100000) for each store, a flood of KEYS (10000000), REQUESTS (200000) over
#              connections that break, the longest call of the script, BOOKS (1000000) of requests that
#              are held and settled, FAILOVERS (20) of Sentinel and Cluster, HISTORIES (10000) for
#              each store, every eviction policy, each fuzz test LOOPS (10000000) times, mutants
# make mutants put MUTANTS (100) random faults into the library, one at a time, and print those that its tests
#              do not find; SEED repeats a sample, IN=core,stores/memstore limits it to folders
# make soak    instances on a Redis that fails again and again, and rules that change, for SOAK (1h)

ADDR ?= 127.0.0.1:8080
TREE ?= .
FUZZTIME ?= 10s
PROOF_SECONDS ?= 60
KILLS ?= 100
SCHEDULES ?= 100000
KEYS ?= 10000000
REQUESTS ?= 200000
BOOKS ?= 1000000
FAILOVERS ?= 20
HISTORIES ?= 10000
LOOPS ?= 10000000
SOAK ?= 1h
MUTANTS ?= 100

.PHONY: demo test lint tidy measure bench fuzz faults proof mutants soak

demo:
	go run ./cmd/limitctl demo --addr $(ADDR)

test:
	scripts/test.sh

lint:
	scripts/lint.sh

tidy:
	scripts/tidy.sh

measure:
	@scripts/measure.sh $(TREE)

bench:
	scripts/each.sh go test -run '^$$' -bench . -benchmem ./...

fuzz:
	scripts/fuzz.sh $(FUZZTIME)

faults:
	cd proof && LIMIT_FAULTS=1 LIMIT_REQUIRE_REDIS=1 go test -count=1 -v -timeout=30m -run 'TestFaults$$|Recovery|TestReset' .

proof:
	cd proof && LIMIT_PROOF_SECONDS=$(PROOF_SECONDS) LIMIT_PROOF_KILLS=$(KILLS) go test -count=1 -v -timeout=1h -run 'AnyWindow|KilledHolders|ManyLeases|Shaping|Demo|Bandwidth|Streams' .
	cd proof && LIMIT_PROOF_KEYS=$(KEYS) go test -count=1 -v -timeout=1h -run 'TestFlood$$' .
	LIMIT_SCHEDULES=$(SCHEDULES) go test -count=1 -v -timeout=2h -run 'Definition|TestStore/Schedules|TestBatches|BoundDecidesAlike' ./core ./stores/memstore ./stores/redisstore
	LIMIT_LONGEST=1 go test -count=1 -v -timeout=1h -run Longest ./stores/redisstore
	LIMIT_REQUESTS=$(REQUESTS) go test -count=1 -v -timeout=1h -run 'InTime|LostReplies|EveryByte|Swapped|Flushed|UnavailableStates' ./stores/redisstore
	LIMIT_BOOKS=$(BOOKS) go test -count=1 -v -timeout=2h -run Books ./stores/redisstore
	cd proof && LIMIT_BOOKS=$(BOOKS) go test -count=1 -v -timeout=2h -run BooksBehindGuards .
	cd proof && LIMIT_FAILOVERS=$(FAILOVERS) go test -count=1 -v -timeout=1h -run 'Failovers|Kills|Slots' .
	cd proof && LIMIT_HISTORIES=$(HISTORIES) go test -count=1 -v -timeout=1h -run Linearizable .
	cd proof && LIMIT_EVICTION=20000 go test -count=1 -v -timeout=1h -run Eviction .
	scripts/fuzz.sh $(LOOPS)x
	$(MAKE) mutants

soak:
	cd proof && LIMIT_SOAK=$(SOAK) go test -count=1 -v -timeout=0 -run 'TestSoak$$' .

mutants:
	cd proof && LIMIT_MUTANTS=$(MUTANTS) LIMIT_MUTANTS_SEED=$(SEED) LIMIT_MUTANTS_IN=$(IN) go test -count=1 -v -timeout=0 -run TestMutants ./mutate
