// SPDX-License-Identifier: Apache-2.0

// Package soak runs the real program for a long time, as processes in an emulated network, under
// random faults and random transfers. It explains every failed transfer.
//
//	soak_test.go      the network, the workers, and the check of the results
//	faults_test.go    random faults, and how each one is repaired
//	programs_test.go  this package's own apps and servers
package soak

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/e2e/rig"
)

const mb = 1_000_000

var (
	soakDuration = flag.Duration("soak", 10*time.Second, "how long transfers and faults go on")
	soakSeed     = flag.Uint64("seed", 0, "seed of transfers and faults; 0: a new one")
)

const (
	workers      = 8
	transferTime = 3 * time.Minute // limit for one transfer
)

func TestMain(m *testing.M) { rig.Main(m, runProgram) }

// network is a primary with two helpers.
//
//	primary ─────────── ps ────────── server ─ core ─ web
//	   ├─ pipe1 ─ helper1 ─ hs1 ─────────┤
//	   └─ pipe2 ─ helper2 ─ hs2 ─────────┘
type network struct {
	*rig.Network
	web4, web6 string
	roles      map[string]*role // by node

	mu       sync.Mutex // protects all fields below
	tun      bool       // the primary runs with --tun
	began    time.Time
	absences []absence // restarts
	freezes  []absence
	faults   []string
	results  []result
}

// absence is a period in which the server or the primary does not run, which ends its streams.
type absence struct {
	node     string
	from, to time.Time // to is zero until the role runs again
}

// newNetwork builds the network and starts all roles.
func newNetwork(t *testing.T) *network {
	t.Helper()
	topology := rig.Triangle(t, "12/10/20,8/30")
	n := &network{Network: rig.New(t, rig.Options{Lab: topology, Race: true}), began: time.Now()}
	addr := func(node, link string) string {
		a, err := topology.Addr(node, link)
		if err != nil {
			t.Fatal(err)
		}
		return a.String()
	}
	n.web4 = addr("web", "")
	addresses := n.Must("web", "sh", "-c", "ip -6 -o addr show scope global | sed 's/.*inet6 //; s,/.*,,'")
	n.web6 = strings.Fields(addresses)[0]
	keys := map[string]identity.PublicKey{}
	for _, node := range []string{"server", "primary", "helper1", "helper2"} {
		k, err := identity.CreateKey(filepath.Join(n.Dir, node, "device.key"))
		if err != nil {
			t.Fatal(err)
		}
		keys[node] = k.Public()
	}
	trust := func(at, who string, role identity.Role, addrs ...string) {
		list, err := identity.OpenTrust(filepath.Join(n.Dir, at, "trust.toml"))
		if err == nil {
			err = list.Add(identity.Peer{Name: who, Roles: []identity.Role{role}, Key: keys[who], Addresses: addrs})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	server := addr("server", "core") + ":7600"
	trust("server", "primary", identity.RolePrimary)
	trust("primary", "server", identity.RoleServer, server)
	for i, node := range topology.Helpers() {
		pipe := fmt.Sprint("pipe", i+1)
		trust("primary", node, identity.RoleHelper, addr(node, pipe)+":7602")
		trust(node, "primary", identity.RolePrimary, addr("primary", pipe)+":7602")
		trust(node, "server", identity.RoleServer, server)
		config := "[onload]\nallowance = \"unlimited\"\nallow = [\"10.77.0.0/16\"]\n"
		if err := os.WriteFile(filepath.Join(n.Dir, node, "helper.toml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A destination with its own route bypasses --tun, and the lab gives each node a route to
	// every other node.
	n.Must("primary", "sh", "-c", fmt.Sprintf("ip -4 route del %s/32 && ip -6 route del %s/128", n.web4, n.web6))
	n.Start("web", os.Args[0], "lab", "plain", ":"+plainPort)
	n.Start("web", os.Args[0], "lab", "echo")
	n.startRoles()
	return n
}

// transfer is one kind of transfer that an app makes. want is the expected output, or "" if the
// output varies.
type transfer struct {
	name  string
	bytes int64
	argv  []string
	want  string
}

// pickTransfer returns a random transfer.
func (n *network) pickTransfer(r *rand.Rand, tun bool) transfer {
	size := int64(1000 * (1 << r.IntN(13))) // 1 KB to 4 MB
	host, family := n.web4, "IPv4"
	if r.IntN(2) == 0 {
		host, family = "["+n.web6+"]", "IPv6"
	}
	curl := []string{"curl", "-gsSf", "--max-time", strconv.Itoa(int(transferTime.Seconds())), "-H", "Expect:"}
	const socks, run, system = "SOCKS5", "run", "TUN"
	by := []string{socks, run, "HTTP proxy", system}[r.IntN(3+map[bool]int{true: 1}[tun])]
	own := map[string]string{socks: "socks"}[by]
	if own == "" {
		own = "system"
	}
	var before []string
	switch by {
	case socks:
		curl = append(curl, "--socks5-hostname", "127.0.0.1:1080")
	case "HTTP proxy":
		curl = append(curl, "-x", "http://127.0.0.1:1080")
	case run:
		before = []string{n.Mpbond, "run", "--"}
	}
	t := transfer{name: by + ", " + family + ", ", bytes: size}
	t.want, _ = rig.Sum(rig.Noise(size))
	file := filepath.Join(n.Dir, fmt.Sprint("noise", size))
	switch kind := r.IntN(8); {
	case kind < 2:
		t.name += "download"
		t.argv = append(curl, fmt.Sprintf("http://%s/%d", host, size))
	case kind == 2:
		t.name += "download without length"
		t.argv = append(curl, "--http1.0", fmt.Sprintf("http://%s:%s/%d", host, plainPort, size))
	case kind < 5:
		t.name += "upload"
		t.argv = append(curl, "-T", file, fmt.Sprintf("http://%s/", host))
	case kind == 5 && by != "HTTP proxy":
		t.name += "upload with half-close"
		t.argv = []string{os.Args[0], "lab", "put", own, host + ":" + plainPort, fmt.Sprint(size)}
	case kind == 6 && by != "HTTP proxy":
		t.name += "datagrams"
		t.bytes, t.want = 0, ""
		t.argv = []string{os.Args[0], "lab", "datagrams", own, host + ":" + echoPort}
	default:
		_, hash, _ := strings.Cut(t.want, ":")
		t = transfer{name: "onloading", bytes: size, argv: []string{n.Mpbond, "get", "--onload", "--quiet",
			"--sha256", hash, "-o", "OUTPUT", fmt.Sprintf("http://%s/%d", n.web4, size)}}
		return t
	}
	t.argv = append(before, t.argv...)
	return t
}

// result is the outcome of a transfer.
type result struct {
	transfer
	from, to      time.Time
	err           error
	wrongBytes    bool // it ended in order with different bytes
	datagramsBack int
}

// runTransfer runs a transfer to completion.
func (n *network) runTransfer(t transfer, worker int) (r result) {
	output := filepath.Join(n.Dir, fmt.Sprint("got", worker))
	for i, a := range t.argv {
		if a == "OUTPUT" {
			t.argv[i] = output
			defer os.Remove(output)
		}
	}
	r = result{transfer: t, from: time.Now()}
	var out string
	out, r.err = n.Run("primary", t.argv...)
	r.to = time.Now()
	switch {
	case r.err != nil:
		text := r.err.Error()
		r.wrongBytes = strings.Contains(text, "wrong datagram") ||
			strings.Contains(text, "ended in order with") && !strings.Contains(text, `answer ""`)
	case strings.HasSuffix(t.name, "datagrams"):
		r.datagramsBack, r.err = strconv.Atoi(out)
	case t.name == "onloading":
	case !strings.Contains(t.name, "upload"):
		out, _ = rig.Sum(strings.NewReader(out))
		fallthrough
	default:
		if r.wrongBytes = out != t.want; r.wrongBytes {
			r.err = fmt.Errorf("ended in order with %s, want %s", out, t.want)
		}
	}
	return r
}

// explainFailure returns what explains a failed transfer, or "". Streams do not survive a restart of
// the primary or the server. `mpbond run` does not begin if the primary was frozen for as long as
// commands wait for an answer. Wrong bytes, and failures of onloading, which needs neither, have no
// explanation.
func (n *network) explainFailure(r result) string {
	if r.wrongBytes || r.name == "onloading" {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range n.absences {
		if r.to.After(a.from) && (a.to.IsZero() || r.from.Before(a.to)) {
			return a.node + " restarted"
		}
	}
	for _, f := range n.freezes {
		if f.node == "primary" && r.from.Before(f.to) && f.to.Sub(f.from) > commandTimeout &&
			strings.Contains(r.err.Error(), "primary.sock does not answer") {
			return "frozen primary did not answer"
		}
	}
	return ""
}

// commandTimeout is about how long commands wait for the running mpbond (api/client).
const commandTimeout = 4900 * time.Millisecond

// transferUntil runs random transfers one after the other until ctx ends.
func (n *network) transferUntil(ctx context.Context, worker int, seed uint64) {
	r := rand.New(rand.NewPCG(seed, uint64(worker)))
	for ctx.Err() == nil {
		n.mu.Lock()
		tun := n.tun
		n.mu.Unlock()
		res := n.runTransfer(n.pickTransfer(r, tun), worker)
		n.mu.Lock()
		n.results = append(n.results, res)
		n.mu.Unlock()
		if res.err != nil { // without a pause, an app would only count failures
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
}

// TestSoak checks that under random faults all bytes that arrive in order are right, and that only
// a restart of the primary or the server makes transfers fail.
func TestSoak(t *testing.T) {
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-soak %v -seed %d", *soakDuration, seed)
	n := newNetwork(t)
	for i := range 13 {
		size := int64(1000 * (1 << i))
		b := make([]byte, size)
		_, _ = rig.Noise(size).Read(b)
		if err := os.WriteFile(filepath.Join(n.Dir, fmt.Sprint("noise", size)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), *soakDuration)
	defer cancel()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() { n.transferUntil(ctx, w, seed) })
	}
	n.injectFaultsUntil(ctx, seed)
	all.Wait()
	n.checkResults()
	n.Await(3) // until all subflows are back
	n.reportMemory()
}

// checkResults logs the transfers and fails the test for each failure without an explanation.
func (n *network) checkResults() {
	n.Helper()
	var bytes int64
	var sent, back, failed int
	kinds, causes := map[string][2]int{}, map[string]int{}
	for _, r := range n.results {
		k := kinds[r.name]
		k[0]++
		switch cause := ""; {
		case r.err == nil && strings.HasSuffix(r.name, "datagrams"):
			sent, back = sent+datagramCount, back+r.datagramsBack
		case r.err == nil:
			bytes += r.bytes
		default:
			failed++
			k[1]++
			if cause = n.explainFailure(r); cause == "" {
				n.Errorf("unexplained: %s of %d bytes, from %v for %v: %v\nfaults then: %v", r.name, r.bytes,
					r.from.Sub(n.began).Round(time.Millisecond), r.to.Sub(r.from).Round(time.Millisecond),
					r.err, n.faultsAround(r))
				cause = "unexplained"
			}
			causes[cause]++
		}
		kinds[r.name] = k
	}
	names := make([]string, 0, len(kinds))
	for name, k := range kinds {
		names = append(names, fmt.Sprintf("%5d, failed %3d: %s", k[0], k[1], name))
	}
	slices.Sort(names)
	n.Logf("%d transfers, %.1f MB verified, %d of %d datagrams came back, %d faults, %d failures by cause: %v\n%s",
		len(n.results), float64(bytes)/mb, back, sent, len(n.faults), failed, causes, strings.Join(names, "\n"))
	n.Logf("faults by kind: %v", countKinds(n.faults))
	for _, p := range n.All {
		if p.Node == "web" && strings.Contains(p.Log.String(), "SHORT") {
			n.Errorf("the web server saw a short or wrong upload end in order:\n%s", &p.Log)
		}
	}
}

// reportMemory logs the current and peak resident memory of each role.
func (n *network) reportMemory() {
	for _, node := range []string{"server", "primary", "helper1", "helper2"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.roles[node].process.Cmd.Process.Pid))
		if err != nil {
			n.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "VmHWM") || strings.HasPrefix(line, "VmRSS") {
				n.Log(node, strings.Join(strings.Fields(line), " "))
			}
		}
	}
}
