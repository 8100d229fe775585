package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Ports of mpbond in the lab, its own defaults.
const (
	bondPort  = 7600 // server: subflows
	socksPort = 1080 // primary: SOCKS5 proxy, on loopback
	pipePort  = 7602 // primary: helpers call here
)

// bondTimeout is how long all subflows may take to come up.
const bondTimeout = 15 * time.Second

// bonded is mpbond itself: server, primary and helpers as processes in their
// nodes, and curl through the primary's SOCKS5 proxy. A transfer starts when
// all subflows are up and none has carried data.
type bonded struct {
	scheduler string // of server and primary; empty: mpbond's own choice
}

// Start makes keys, has the devices trust each other, and starts processes.
func (m *bonded) Start(ctx context.Context, b *Bench) error {
	if err := b.StartWeb(ctx); err != nil {
		return err
	}
	processes, err := mpbondProcesses(ctx, b, m.scheduler)
	if err != nil {
		return err
	}
	for _, p := range processes {
		if err := b.Spawn(ctx, p.node, p.port, mpbondEnv(b, p.node), p.argv...); err != nil {
			return err
		}
	}
	return m.ready(ctx, b)
}

func (*bonded) Client(b *Bench, t Transfer) []string {
	return append(b.Curl(t), "--socks5-hostname", fmt.Sprintf("127.0.0.1:%d", socksPort))
}

// Verify tells what the primary says of its subflows.
func (m *bonded) Verify(ctx context.Context, b *Bench) (map[string]any, error) {
	s, err := m.status(ctx, b)
	if err != nil {
		return nil, err
	}
	return map[string]any{"bonds": s.Bonds}, nil
}

func (*bonded) Stop(context.Context, *Bench) error { return nil }

// bondStatus is the part of `mpbond status --json` that is needed here.
type bondStatus struct {
	Bonds []struct {
		Scheduler string           `json:"scheduler"`
		Wasted    map[string]int64 `json:"wasted_bytes,omitempty"`
		Paths     []struct {
			Device    string `json:"device"`
			Kind      string `json:"kind"`
			State     string `json:"state"`
			Rx        int64  `json:"rx_bytes"`
			Tx        int64  `json:"tx_bytes"`
			LastError string `json:"last_error,omitempty"`
		} `json:"paths"`
	} `json:"bonds"`
}

func (*bonded) status(ctx context.Context, b *Bench) (s bondStatus, err error) {
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	socket := filepath.Join(mpbondHome(b, "primary"), "run", "primary.sock")
	out, err := b.Run(ctx, "primary", self, "status", "--json", "--socket", socket)
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	return s, err
}

// ready waits until the direct subflow and one by each helper are up.
func (m *bonded) ready(ctx context.Context, b *Bench) error {
	ctx, cancel := context.WithTimeout(ctx, bondTimeout)
	defer cancel()
	want := 1 + len(b.Lab.Topology.Helpers())
	for {
		s, err := m.status(ctx, b)
		up := 0
		for _, bond := range s.Bonds {
			for _, p := range bond.Paths {
				if p.State == "up" {
					up++
				}
			}
		}
		if err == nil && up >= want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("mpbond: %d of %d subflows are up after %v: %v %+v%s", up, want, bondTimeout, err, s, b.said())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// mpbondProcess is one process of a bond in the lab.
type mpbondProcess struct {
	node string
	port int // TCP port on which it listens when ready; 0: do not wait
	argv []string
}

func mpbondHome(b *Bench, node string) string { return filepath.Join(b.Dir, "mpbond", node) }

func mpbondEnv(b *Bench, node string) []string { return []string{"MPBOND_HOME=" + mpbondHome(b, node)} }

// mpbondProcesses makes the keys of all devices and returns the commands of
// the processes, in the order in which to start them.
func mpbondProcesses(ctx context.Context, b *Bench, scheduler string) (p []mpbondProcess, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := b.mpbondKeys(ctx, self); err != nil {
		return nil, err
	}
	server := []string{self, "server", "--allow", "10.0.0.0/8", "--allow", "fd00::/8"}
	primary := []string{self, "primary", "--transparent", "0"}
	if scheduler != "" {
		server = append(server, "--scheduler", scheduler)
		primary = append(primary, "--scheduler", scheduler)
	}
	if b.LogDir != "" {
		server = append(server, "--trace", filepath.Join(b.LogDir, "server-trace.jsonl"))
		primary = append(primary, "--trace", filepath.Join(b.LogDir, "primary-trace.jsonl"), "--name", "primary")
	}
	p = append(p, mpbondProcess{"server", bondPort, server}, mpbondProcess{"primary", socksPort, primary})
	for _, h := range b.Lab.Topology.Helpers() {
		p = append(p, mpbondProcess{h, 0, []string{self, "helper"}})
	}
	if b.LogDir != "" {
		for i := range p {
			p[i].argv = append(p[i].argv, "--trace", filepath.Join(b.LogDir, p[i].node+"-trace.jsonl"))
		}
	}
	return p, nil
}

// mpbondKeys makes each device's key and tells the others, once for a bench.
// All devices name the server by one address, which each reaches by its own
// path; helpers call the primary over their pipe.
func (b *Bench) mpbondKeys(ctx context.Context, self string) error {
	if _, err := os.Stat(filepath.Join(b.Dir, "mpbond")); err == nil {
		return nil
	}
	t := b.Lab.Topology
	keys := map[string]string{}
	mpbond := func(node string, args ...string) (string, error) {
		return b.Run(ctx, node, append([]string{"env", mpbondEnv(b, node)[0], self}, args...)...)
	}
	for _, node := range append([]string{"primary", "server"}, t.Helpers()...) {
		if err := os.MkdirAll(mpbondHome(b, node), 0o700); err != nil {
			return err
		}
		out, err := mpbond(node, "keygen", "--json")
		if err != nil {
			return err
		}
		var key struct {
			Key string `json:"key"`
		}
		if err := json.Unmarshal([]byte(lastLine(out)), &key); err != nil {
			return fmt.Errorf("mpbond keygen in %s: %w: %s", node, err, out)
		}
		keys[node] = key.Key
	}
	trust := func(node, peer, role string, addr ...string) error {
		_, err := mpbond(node, append([]string{"trust", "add", peer, "--role", role, "--key", keys[peer]}, addr...)...)
		return err
	}
	addr, err := t.Addr("server", t.between("server", "web"))
	if err != nil {
		return err
	}
	if err := trust("server", "primary", "primary"); err != nil {
		return err
	}
	server := fmt.Sprintf("%s:%d", addr, bondPort)
	if err := trust("primary", "server", "server", "--addr", server); err != nil {
		return err
	}
	for _, h := range t.Helpers() {
		pipe, err := t.Addr("primary", t.between("primary", h))
		if err != nil {
			return err
		}
		if err := trust("primary", h, "helper"); err != nil {
			return err
		}
		if err := trust(h, "server", "server", "--addr", server); err != nil {
			return err
		}
		if err := trust(h, "primary", "primary", "--addr", fmt.Sprintf("%s:%d", pipe, pipePort)); err != nil {
			return err
		}
	}
	return nil
}
