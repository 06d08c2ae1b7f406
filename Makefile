# make alone lists the targets.
GO       ?= go
PREFIX   ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
FUZZTIME ?= 10s
CRASHES  ?= 2000
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Tests keep HOME, cwd and temporary files in a directory of their own outside
# /tmp and /var/tmp, which a branch captures.
SCRATCH ?= $(if $(filter /tmp/% /var/tmp/% /dev/shm/%,$(abspath ..)/),$(HOME),$(abspath ..))/.try-test-$(shell id -u)
export CGO_ENABLED ?= 0
testenv = mkdir -p $(SCRATCH) && export TMPDIR=$(SCRATCH) GOTMPDIR=$(SCRATCH) LANG=C.UTF-8
# Under nohup(1), or in the background of a script, signals are ignored that the
# tests send; they would wait for ever.
gotest = $(node) env --default-signal $(GO) test -count=1
# TESTFLAGS='-run=^(TestA|TestB)$$' in the environment runs these alone.
# Root lets everybody open /dev/fuse, in a mount namespace of its own.
node = $(if $(filter 0,$(shell id -u)),.ci/fuse-node)

.PHONY: help build install man test test1 fuse1 race crash fuzz bench lint fmt clean

help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

build: ## bin/try
	$(GO) build -trimpath -ldflags='-s -w' -o bin/try ./cmd/try

install: build ## into $(PREFIX)/bin, with the man page (DESTDIR is honoured)
	install -D -m 0755 bin/try $(DESTDIR)$(PREFIX)/bin/try
	install -D -m 0644 cmd/try/try.1 $(DESTDIR)$(PREFIX)/share/man/man1/try.1

man: ## cmd/try/try.1, of the help texts and testdata/try.1.in
	$(testenv) && $(GO) test -count=1 -run 'TestManPage$$' ./cmd/try -update

# What runs in sessions runs on both engines, the second time without overlay.
test: ## every test, on both engines
	@$(testenv); status=0; $(gotest) -timeout 15m $$TESTFLAGS ./... || status=1; \
	if $(node) test -w /dev/fuse; then \
	  echo "once more, on the fuse engine:"; TRY_TEST_NO=overlay $(gotest) -timeout 15m $$TESTFLAGS ./supervisor ./cmd/try || status=1; \
	else echo "SKIPPED, for /dev/fuse cannot be opened: the fuse engine"; test -z "$$TRY_TEST_FUSE" || status=1; fi; \
	exit $$status

test1: ## every test with GOMAXPROCS=1 and umask 002
	umask 002 && $(testenv) && GOMAXPROCS=1 $(gotest) -timeout 20m $$TESTFLAGS ./...

fuse1: ## the fuse engine with GOMAXPROCS=1: a server that waits for itself would hang
	@$(testenv) GOMAXPROCS=1; status=0; $(gotest) -timeout 10m $$TESTFLAGS ./fs/fusefs ./fs/fstest || status=1; \
	TRY_TEST_NO=overlay $(gotest) -timeout 10m -run 'Fuse|Mounts|Race|Native' $$TESTFLAGS ./supervisor || status=1; \
	exit $$status

# Two packages have no goroutines, and start so many processes that the detector
# would make them take ten minutes for nothing.
single = fs/changes|fs/commit
race: ## every test of code with goroutines under the race detector
	$(testenv) && CGO_ENABLED=1 $(gotest) -race -timeout 20m $$TESTFLAGS $$($(GO) list ./... | grep -vE '($(single))$$')

crash: ## the crash tests with $(CRASHES) rounds and a new seed
	$(testenv) && $(gotest) -timeout 30m -v -run 'Crash|Kill|Power' ./fs/commit -kills $(CRASHES) -seed $$(date +%s)
	$(testenv) && TRY_CRASHES=$(CRASHES) $(gotest) -timeout 30m -v -run 'Crash|Killed' ./supervisor

# Instrumented for fuzzing, init's nosplit code does not link: what imports ns has
# its seeds run by make test only. Before Go 1.27 the end of FUZZTIME can be taken
# for a failure (go.dev/issue/75804), so what fails runs once more: an input that
# was found has been written to testdata, is tried first then, and fails again.
fuzz: ## each fuzz target for FUZZTIME
	@$(testenv) && for p in $$($(GO) list ./... | grep -vE '/(ns|supervisor|cmd/try|cmd/bench|examples)$$'); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p 2>/dev/null | grep '^Fuzz'); do \
	    for again in '' ', once more'; do \
	      echo "$$p $$f$$again"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$p && continue 2; \
	    done; exit 1; done; done

bench: build ## one table of ratios, peers beside us
	$(testenv) && env --default-signal $(GO) run ./cmd/bench $(BENCHFLAGS)

lint: ## gofmt, vet, staticcheck
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

fmt: ## gofmt -w
	gofmt -w .

clean: ## what a build or a test left
	rm -rf bin
	rm -rf -- $(SCRATCH)
