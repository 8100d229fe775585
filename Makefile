# SPDX-License-Identifier: Apache-2.0
# All commands for developers. Plain `make` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

FUZZTIME ?= 30s
DEMO ?=
BENCH ?=
LONG ?=
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
MPBOND := bin/mpbond
LDFLAGS ?=
DESTDIR ?=
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
UNITDIR ?= $(PREFIX)/lib/systemd/system
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions

SOAK ?= 1h
BASE ?= HEAD
.PHONY: help demo fleet test quick lint check fuzz kill again flows sleep soak gigabyte homes hostile limits vm bench \
	exp build product install deb cross long reference picture screenshots deps clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: deps build ## compare one download over three emulated devices with one link and kernel MPTCP: 1 min (DEMO: flags)
	@bin/mpbond-lab demo $(DEMO)

fleet: deps build ## show several servers for the same devices: one is killed, one drains, a device is revoked: 2 min
	@[ -e bin/nats-server ] || .ci/deps nats
	@bin/mpbond-lab fleet

test: ## run all tests, with the race detector where there are goroutines, and count them: 12 min
	@go build -o bin/count ./archtest/count
	@.ci/test | bin/count $$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...)

quick: ## check what differs from BASE (HEAD), and vet and test what imports it: 1 min
	@BASE='$(BASE)' .ci/quick

lint: ## check format, vet, staticcheck, spelling and known vulnerabilities
	@bad=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go' | xargs -r ls -d 2>/dev/null)); \
		[ -z "$$bad" ] || { echo "gofmt -w $$bad"; exit 1; }
	go vet ./...
	go vet -tags router ./cmd/mpbond ./onload/upload ./node/intercept/tun
	go tool staticcheck ./...
	@git ls-files '*.go' '*.md' '*.js' '*.html' '*.toml' | grep -v _test.go | xargs go tool misspell -error
	@.ci/vulns
	@go run ./cmd/mpbond-lab exp ages $$(git ls-files '*.md') || true # warns of old figures, never fails

check: lint ## run lint, and check the import rules, links and documents of the tree
	@go build -o bin/count ./archtest/count
	{ go test -json ./archtest/...; go test -json -run '^Test(Documents|Reference)$$' ./cmd/...; } | bin/count

fuzz: ## run each fuzz target for FUZZTIME (30s)
	@.ci/fuzzers | while read -r p f; do \
		echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p </dev/null; \
	done

kill: ## kill server, helper and primary a hundred times while they write files: 8 min
	@go test -count=1 -v -timeout 20m -run '^TestKill$$' ./e2e/pair -kills 100

again: ## block UDP for a while, also during a transfer, time datagrams, and run attacks of a minute: 3 min
	@go test -count=1 -v -timeout 10m \
		-run '^Test(UDPAgain|DatagramsInTheLab|ExhaustedServer|UnknownCallersInTheLog)$$' ./e2e -patient

sleep: ## suspend helper and primary for 75 s each during transfers: 3 min
	@go test -count=1 -v -timeout 10m -run '^TestSleep$$' ./e2e -asleep 75s

soak: ## run random transfers under random faults for SOAK (1h); each failure must have a cause
	@go test -count=1 -v -timeout 24h -run '^TestSoak$$' ./e2e/soak -soak $(SOAK)

flows: ## compare our BBR and CUBIC with the kernel's, and run PBE-CC over a cell: 10 min (RUN=REGEXP: these tests)
	@go test -count=1 -v -timeout 40m -run '$(or $(RUN),.)' ./e2e/flow -long -tries 4

gigabyte: ## fetch 1 GB by onloading over three links, and kill a helper twice: 3 min
	@go test -count=1 -v -timeout 10m -run '^TestGetKilled$$' ./e2e/onload -long

homes: ## compare videos with phones and by the home line alone in 100 random cases of each kind: 3 min
	@go test -count=1 -v -timeout 30m -run '^TestNeverBehindHome$$' ./onload/playlist -home.seed 0 -home.cases 100

hostile: ## send 10,000,000 frames of hostile peers to bonds: 10 min
	@go test -count=1 -v -timeout 2h -run '^TestHostile$$' ./core/bond -frames 10000000

limits: ## fill servers of a fleet with 1 GB and 4 GB, end one under 500 devices, measure all that: 20 min, as root
	@[ -e bin/nats-server ] || .ci/deps nats
	@go test -count=1 -v -timeout 40m ./e2e/fleet -run '^TestLimits$$' -limits 1GB -limits.time 20s
	@go test -count=1 -v -timeout 60m ./e2e/fleet -run '^TestLimits$$' -limits 4GB -limits.time 20s
	@go test -count=1 -v -timeout 20m ./e2e/fleet -run '^TestCrowd$$' -crowd 500
	@go test -run '^$$' -bench 'ApplyDevice|Put' ./control/fleet ./control/fleet/natsstore

vm: build ## test pipes over Bluetooth in virtual machines: 1 min; downloads 300 MB the first time
	@.ci/deps vm
	@.ci/guest
	@CGO_ENABLED=0 go test -c -o bin/vm/pipe.test ./link/pipe
	@MPBOND_TEST_VM=$(CURDIR)/bin/vm CGO_ENABLED=0 go test -count=1 -v ./e2e/vm

coupled: ## compile the BPF programs of lab/coupled, which are part of mpbond-lab, with clang and llvm
	@cd lab/coupled/bpf && clang -target bpf -mcpu=v3 -O2 -fno-unroll-loops -g -Wall -Werror -c coupled.c -o coupled.o && \
		llvm-strip -g coupled.o && sha256sum coupled.c | cut -d' ' -f1 > coupled.sum

bench: deps build ## measure what mpbond claims: 45 min (BENCH=--quick: 5 min; see mpbond-lab exp run --help)
	@go test -run '^$$' -bench . -benchmem -benchtime 200ms ./... | grep -v '^ok\|no test files\|^PASS\|^goos\|^goarch'
	@bin/mpbond-lab exp --dir bin/exp run bench --for 45m $(BENCH)

exp: deps build ## reproduce all figures in bin/exp/report.html: hours (EXP=--quick: bin/exp/quick/report.html, 12 min)
	@bin/mpbond-lab exp --dir bin/exp run all $(EXP); status=$$?; \
		bin/mpbond-lab exp --dir bin/exp report $(filter --quick,$(EXP)) && exit $$status

# The programs, each static. Targets for other machines build the product alone.
TAGS ?=
BUILD = CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS) -X mpbond/internal/cli.Version=$(VERSION)'
build: ## build bin/mpbond, bin/mpbond-lab and bin/cellwatch
	@mkdir -p bin
	@$(BUILD) -o bin/ ./cmd/...

product: ## build bin/mpbond only
	@$(BUILD) -o $(MPBOND) ./cmd/mpbond

# Builds nothing if bin/mpbond exists: root seldom has Go.
install: $(if $(wildcard $(MPBOND)),,product)
install: ## install bin/mpbond, units, completion and configuration to PREFIX (/usr/local) below DESTDIR
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' UNITDIR='$(UNITDIR)' ZSHDIR='$(ZSHDIR)' \
		MPBOND='$(abspath $(MPBOND))' packaging/install

deb: LDFLAGS := -s -w
deb: product ## build bin/mpbond_VERSION_ARCH.deb (GOARCH=arm64 make deb: for another processor)
	@MPBOND='$(MPBOND)' VERSION='$(VERSION)' packaging/deb

# Programs that cannot run here are at least vetted.
CROSS := linux/amd64 linux/arm64 linux/arm linux/mips linux/mipsle darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
ROUTER := router,nethttpomithttp2
cross: ## build bin/cross/mpbond-SYSTEM-PROCESSOR for Linux (arm v7; mips: tag router), macOS and Windows: minutes
	@for t in $(CROSS); do \
		export GOOS=$${t%/*} GOARCH=$${t#*/} GOARM=7 GOMIPS=softfloat CGO_ENABLED=0; \
		out=bin/cross/mpbond-$$GOOS-$$GOARCH; \
		[ $$GOOS != windows ] || out=$$out.exe; \
		tags=; case $$GOARCH in mips*) tags=$(ROUTER) ;; esac; \
		$(MAKE) product MPBOND=$$out LDFLAGS='-s -w' TAGS=$$tags; \
		[ $$GOOS = linux ] || packaging/vet; \
		echo $$out; \
	done
	@for t in aarch64/arm64 arm/arm mipsel/mipsle mips/mips; do \
		if q=$$(command -v qemu-$${t%/*}); then packaging/try $$q bin/cross/mpbond-linux-$${t#*/}; \
		else echo "not run for $${t#*/}: there is no qemu-$${t%/*} (Debian: qemu-user)"; fi; \
	done

long: ## run cross, kill, sleep and all other long tests: hours; resumable (LONG="kill vm": only these)
	@.ci/long $(LONG)

reference: ## generate docs/reference/*.md from the types and commands
	@go test -count=1 -run '^TestReference$$' ./cmd/... -update

picture: ## draw the picture of layers and imports in ARCHITECTURE.md
	@go test -count=1 -run '^TestPicture$$' ./archtest -update

screenshots: deps ## take the pictures in docs/images of the programs over emulated links: 5 min
	@.ci/deps browser
	@go test -count=1 -v -timeout 15m -run '^TestScreenshots$$' ./e2e/console -update

deps: ## install the Debian packages that demo and tests need, or list them
	@.ci/deps

clean: ## remove bin
	@rm -rf bin
