// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"mpbond/e2e/rig"
)

// role is the process of one role. Only the goroutine that injects faults starts and stops it.
type role struct {
	node    string
	args    []string
	process *rig.Process
}

// startRoles starts all roles and waits until the primary has its direct subflow and one by each
// helper.
func (n *network) startRoles() {
	n.Helper()
	n.roles = map[string]*role{
		"server":  {node: "server", args: []string{"server", "--allow", "10.77.0.0/16", "--allow", "fd77::/16"}},
		"primary": {node: "primary", args: []string{"primary", "--name", "primary"}},
		"helper1": {node: "helper1", args: []string{"helper", "--name", "helper1"}},
		"helper2": {node: "helper2", args: []string{"helper", "--name", "helper2"}},
	}
	for _, node := range []string{"server", "primary", "helper1", "helper2"} {
		n.startRole(n.roles[node], false)
	}
	n.Await(3)
}

// startRole starts a role and waits until it answers.
func (n *network) startRole(r *role, tun bool) {
	n.Helper()
	args := append([]string{n.Mpbond}, r.args...)
	if tun {
		args = append(args, "--tun")
	}
	r.process = n.Start(r.node, args...)
	name := r.args[0]
	rig.Eventually(n, func() error {
		select {
		case <-r.process.Done:
			return fmt.Errorf("%s has ended: %v\n%s", r.node, r.process.Err, &r.process.Log)
		default:
		}
		_, err := n.Status(r.node, name)
		if err == nil && name == "server" && !strings.Contains(r.process.Log.String(), "server is up") {
			err = errors.New("the server is not up")
		}
		return err
	})
}

// restartRole ends a role with a signal and starts it again after the time away, when ctx ends at
// the latest. With tun, the primary then runs with --tun.
func (n *network) restartRole(ctx context.Context, r *role, s syscall.Signal, away time.Duration, tun bool) {
	n.Helper()
	endsStreams := r.node == "server" || r.node == "primary"
	if endsStreams {
		n.mu.Lock()
		n.absences = append(n.absences, absence{node: r.node, from: time.Now()})
		if r.node == "primary" {
			n.tun = false
		}
		n.mu.Unlock()
	}
	r.process.End(s)
	n.All = slices.DeleteFunc(n.All, func(p *rig.Process) bool { return p == r.process })
	if strings.Contains(r.process.Log.String(), "DATA RACE") || strings.Contains(r.process.Log.String(), "panic:") {
		n.Errorf("%s:\n%s", r.node, &r.process.Log)
	}
	pause(ctx, away)
	n.startRole(r, tun)
	if endsStreams {
		n.mu.Lock()
		n.absences[len(n.absences)-1].to = time.Now()
		n.tun = n.tun || tun
		n.mu.Unlock()
	}
}

func (n *network) faultLinks() []string {
	return slices.DeleteFunc(n.Lab.Topology.Links(), func(l string) bool { return l == "core" })
}

// setLinks changes properties of links.
func (n *network) setLinks(links []string, props ...string) {
	n.Helper()
	for _, l := range links {
		if err := n.Lab.Set(l, "", props...); err != nil {
			n.Error(err)
		}
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// injectFault injects one random fault and repairs it, when ctx ends at the latest.
func (n *network) injectFault(ctx context.Context, r *rand.Rand) {
	n.Helper()
	nodes := []string{"server", "primary", "helper1", "helper2"}
	node := n.roles[nodes[r.IntN(len(nodes))]]
	helper := n.roles[nodes[2+r.IntN(2)]]
	links := n.faultLinks()
	r.Shuffle(len(links), func(i, j int) { links[i], links[j] = links[j], links[i] })
	links = links[:1+r.IntN(len(links))]
	slices.Sort(links)
	uniform := func(from, to time.Duration) time.Duration { return from + time.Duration(r.Int64N(int64(to-from))) }
	restored := make([][]string, len(links))
	for i, name := range links {
		l := n.Lab.Topology.Link[name]
		restored[i] = []string{"rate=" + l.Rate, "delay=" + l.Delay, "loss=0"}
	}
	changeLinks := func(props ...string) {
		n.setLinks(links, props...)
		pause(ctx, uniform(time.Second, 10*time.Second))
		for i, l := range links {
			n.setLinks([]string{l}, restored[i]...)
		}
	}
	recordFault := func(format string, args ...any) {
		n.mu.Lock()
		defer n.mu.Unlock()
		at := time.Since(n.began).Round(time.Millisecond)
		n.faults = append(n.faults, fmt.Sprintf("%v %s", at, fmt.Sprintf(format, args...)))
	}
	switch r.IntN(11) {
	case 0, 1:
		away := uniform(0, 3*time.Second)
		recordFault("kill: %s killed, away for %v", helper.node, away)
		n.restartRole(ctx, helper, syscall.SIGKILL, away, false)
	case 2:
		away, tun := uniform(0, 8*time.Second), r.IntN(2) == 0
		recordFault("kill: %s killed, away for %v, TUN after it %v", node.node, away, tun && node.node == "primary")
		n.restartRole(ctx, node, syscall.SIGKILL, away, tun && node.node == "primary")
	case 3:
		away, tun := uniform(0, 3*time.Second), r.IntN(2) == 0
		recordFault("stop: %s stopped in order, away for %v, TUN after it %v",
			node.node, away, tun && node.node == "primary")
		n.restartRole(ctx, node, syscall.SIGTERM, away, tun && node.node == "primary")
	case 4, 5:
		d := uniform(100*time.Millisecond, 6*time.Second)
		recordFault("freeze: %s for %v", node.node, d)
		begin := time.Now()
		_ = node.process.Cmd.Process.Signal(syscall.SIGSTOP)
		pause(ctx, d)
		_ = node.process.Cmd.Process.Signal(syscall.SIGCONT)
		n.mu.Lock()
		n.freezes = append(n.freezes, absence{node.node, begin, time.Now()})
		n.mu.Unlock()
	case 6, 7:
		d := uniform(100*time.Millisecond, 10*time.Second)
		recordFault("outage: %v for %v", links, d)
		n.setLinks(links, "outage=on")
		pause(ctx, d)
		n.setLinks(links, "outage=off")
	case 8:
		rate := 200 + r.IntN(5000)
		recordFault("rate: %v at %d kbit/s", links, rate)
		changeLinks(fmt.Sprintf("rate=%dkbit/s", rate))
	case 9:
		delay := uniform(time.Millisecond, 300*time.Millisecond)
		recordFault("delay: %v at %v", links, delay)
		changeLinks("delay=" + delay.String())
	default:
		loss := 0.1 * r.Float64()
		recordFault("loss: %v at %.3f", links, loss)
		changeLinks(fmt.Sprintf("loss=%.4f", loss))
	}
}

// injectFaultsUntil injects random faults, 2 s apart on average, until ctx ends.
func (n *network) injectFaultsUntil(ctx context.Context, seed uint64) {
	n.Helper()
	r := rand.New(rand.NewPCG(seed, 1<<32))
	for {
		pause(ctx, time.Duration(r.ExpFloat64()*2*float64(time.Second)))
		if ctx.Err() != nil {
			return
		}
		n.injectFault(ctx, r)
	}
}

// faultsAround returns the faults that began during the transfer or in the 15 s before it.
func (n *network) faultsAround(r result) (list []string) {
	for _, f := range n.faults {
		at, _ := time.ParseDuration(strings.Fields(f)[0])
		if when := n.began.Add(at); when.Before(r.to) && when.After(r.from.Add(-15*time.Second)) {
			list = append(list, f)
		}
	}
	return list
}

// countKinds counts faults by kind, the word after the time.
func countKinds(faults []string) map[string]int {
	kinds := map[string]int{}
	for _, f := range faults {
		kinds[strings.TrimSuffix(strings.Fields(f)[1], ":")]++
	}
	return kinds
}
