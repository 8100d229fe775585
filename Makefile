# SPDX-License-Identifier: Apache-2.0
# The whole surface for developers. Plain `make` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

FUZZTIME ?= 30s
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
.PHONY: help demo test quick check fuzz kill again flows sleep soak gigabyte hostile vm bench exp build product install deb cross long reference picture screenshots deps clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: deps build ## one download over three emulated devices, beside one link and kernel MPTCP
	@bin/mpbond-lab demo

# Packages after bin/count run programs in real time: what fails there is made once
# more. Whether all is well bin/count decides.
AGAIN := cmd/mpbond cmd/mpbond-lab e2e e2e/console e2e/flow e2e/onload e2e/pair lab onload/fetch onload/page onload/playlist onload/upload
test: ## all tests, with the race detector where there are goroutines, and their counts
	@go build -o bin/count ./archtest/count
	@.ci/test | bin/count $(addprefix mpbond/,$(AGAIN))

quick: ## vet and test what the change can have broken: packages that differ from BASE (HEAD) and those that import them
	@BASE='$(BASE)' .ci/quick

check: ## format, vet, staticcheck, spelling, links, govulncheck and the import rules of the tree
	@bad=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go' | xargs -r ls -d 2>/dev/null)); \
		[ -z "$$bad" ] || { echo "gofmt -w $$bad"; exit 1; }
	go vet ./...
	go vet -tags router ./cmd/mpbond ./onload/upload ./node/intercept/tun
	go tool staticcheck ./...
	@git ls-files '*.go' '*.md' '*.js' '*.html' '*.toml' | grep -v _test.go | xargs go tool misspell -error
	@.ci/vulns
	@go run ./cmd/mpbond-lab exp ages $$(git ls-files '*.md') || true # warns of old figures, never fails
	@go build -o bin/count ./archtest/count
	go test -json ./archtest/... | bin/count

fuzz: ## every fuzz target for FUZZTIME each (30s)
	@.ci/fuzzers | while read -r p f; do \
		echo "$$p $$f"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$p </dev/null; \
	done

kill: ## a hundred times kill -9 of server, helper and primary while they write: 8 minutes at most
	@go test -count=1 -v -timeout 20m -run '^TestKill$$' ./e2e/pair -kills 100

again: ## UDP blocked for a while, in the middle of a transfer, and attacks of a minute: 3 minutes
	@go test -count=1 -v -timeout 10m -run '^Test(UDPAgain|ExhaustedServer|StrangersInTheLog)$$' ./e2e -patient

sleep: ## helper and primary asleep for 75 s each, in the middle of transfers: 3 minutes
	@go test -count=1 -v -timeout 10m -run '^TestSleep$$' ./e2e -asleep 75s

soak: ## random transfers of all kinds under random faults for SOAK (1h), every failure explained
	@go test -count=1 -v -timeout 24h -run '^TestSoak$$' ./e2e/soak -soak $(SOAK)

flows: ## our BBR and CUBIC beside the kernel's, and PBE-CC over a cell of real packets: 10 minutes, or RUN='TestKernel/two'
	@go test -count=1 -v -timeout 40m -run '$(or $(RUN),.)' ./e2e/flow -long -tries 4

gigabyte: ## 1 GB over three lines without a server, a helper killed twice on the way: 3 minutes
	@go test -count=1 -v -timeout 10m -run '^TestGetKilled$$' ./e2e/onload -long

hostile: ## 10,000,000 frames of hostile peers to bonds: 10 minutes
	@go test -count=1 -v -timeout 2h -run '^TestHostile$$' ./core/bond -frames 10000000

vm: build ## pipes over Bluetooth, emulated in virtual machines: a minute, fetches 300 MB once
	@.ci/deps vm
	@.ci/guest
	@CGO_ENABLED=0 go test -c -o bin/vm/pipe.test ./link/pipe
	@MPBOND_TEST_VM=$(CURDIR)/bin/vm CGO_ENABLED=0 go test -count=1 -v ./e2e/vm

bench: deps build ## what mpbond claims, measured: 45 minutes (BENCH=--quick: 5; see mpbond-lab exp run --help)
	@go test -run '^$$' -bench . -benchmem -benchtime 200ms ./... | grep -v '^ok\|no test files\|^PASS\|^goos\|^goarch'
	@bin/mpbond-lab exp --dir bin/exp run bench --for 45m $(BENCH)

exp: deps build ## the published tables and figures, and ours: bin/exp/report.html (EXP=--quick: bin/exp/quick/report.html, 12 minutes at most)
	@bin/mpbond-lab exp --dir bin/exp run all $(EXP); status=$$?; bin/mpbond-lab exp --dir bin/exp report $(filter --quick,$(EXP)) && exit $$status

# The programs, each static. Targets for other machines build the product alone.
TAGS ?=
BUILD = CGO_ENABLED=0 go build -trimpath -tags '$(TAGS)' -ldflags '$(LDFLAGS) -X mpbond/internal/cli.Version=$(VERSION)'
build: ## bin/mpbond, bin/mpbond-lab and bin/cellwatch
	@mkdir -p bin
	@$(BUILD) -o bin/ ./cmd/...

product: ## bin/mpbond alone
	@$(BUILD) -o $(MPBOND) ./cmd/mpbond

# Does not build what is there: root seldom has Go.
install: $(if $(wildcard $(MPBOND)),,product) ## bin/mpbond, units, completion, configuration to PREFIX (/usr/local), below DESTDIR
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' SYSCONFDIR='$(SYSCONFDIR)' UNITDIR='$(UNITDIR)' ZSHDIR='$(ZSHDIR)' \
		MPBOND='$(abspath $(MPBOND))' packaging/install

deb: LDFLAGS := -s -w
deb: product ## bin/mpbond_VERSION_ARCH.deb (GOARCH=arm64 make deb: for another machine)
	@MPBOND='$(MPBOND)' VERSION='$(VERSION)' packaging/deb

# What cannot be run here is vetted at least.
CROSS := linux/amd64 linux/arm64 linux/arm linux/mips linux/mipsle darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
ROUTER := router,nethttpomithttp2
cross: ## bin/cross/mpbond-SYSTEM-PROCESSOR for Linux (arm v7; mips as for OpenWrt: no FPU, tag router), macOS, Windows: minutes
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

long: ## cross, kill, sleep, again, soak, gigabyte, hostile, flows, fuzz with 1,000,000 inputs each, exp, vm: hours; goes on where it was interrupted (LONG="kill vm": these)
	@.ci/long $(LONG)

reference: ## docs/reference*.md, from the types and commands
	@go test -count=1 -run '^TestReference$$' ./cmd/... -update

picture: ## the picture of layers and imports in ARCHITECTURE.md
	@go test -count=1 -run '^TestPicture$$' ./archtest -update

screenshots: deps ## the pictures in docs/images, of the programs over emulated links: 5 minutes
	@.ci/deps browser
	@go test -count=1 -v -timeout 15m -run '^TestScreenshots$$' ./e2e/console -update

deps: ## install the Debian packages that demo and tests need, or say which
	@.ci/deps

clean: ## remove what was built
	@rm -rf bin
