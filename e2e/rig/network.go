// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/lab"
)

// Network is a set of nodes and the processes that run in them. Each node has a directory below Dir
// for the keys and sockets of mpbond. Command, Run, JSON and Status may be called concurrently,
// other methods by one goroutine at a time.
type Network struct {
	testing.TB
	Lab    *lab.Lab // nil if all nodes are this machine
	Mpbond string   // path of the program
	Dir    string
	All    []*Process
}

// Options are the options of New.
type Options struct {
	Lab  *lab.Topology // nil if all nodes are this machine
	Pcap string        // directory for packet captures, "" for none
	Race bool          // build mpbond with the race detector if the tests have it
}

var networkCount atomic.Int32

// New makes a network. It starts a web server if there is a node web. When the test ends, New's
// cleanup ends all processes and checks that nothing is left.
func New(t testing.TB, o Options) *Network {
	t.Helper()
	dir := plainDir
	if o.Race && Race {
		dir = racedDir
	}
	mpbond, err := buildProgram("mpbond", dir)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("n%d", networkCount.Add(1))
	n := &Network{TB: t, Mpbond: mpbond, Dir: filepath.Join(filesDir, name)}
	t.Cleanup(func() { os.RemoveAll(n.Dir) })
	t.Cleanup(n.shutDownNetwork)
	if o.Lab == nil {
		return n
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: `mpbond run` sets up redirection")
	}
	for _, p := range []string{"ip", "nft", "curl", "nsenter"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
	options := lab.Options{Name: name, EndWithProcess: true, Pcap: o.Pcap}
	if Race { // with the race detector an emulated packet costs several times as much processor time
		if options.Program, err = buildProgram("mpbond-lab", plainDir); err != nil {
			t.Fatal(err)
		}
	}
	if n.Lab, err = lab.Up(o.Lab, options); err != nil {
		t.Fatal(err)
	}
	if o.Lab.Node["web"] != nil {
		n.Start("web", os.Args[0], "lab", "web", ":80")
	}
	return n
}

// shutDownNetwork ends all processes, removes the lab and checks that nothing is left.
func (n *Network) shutDownNetwork() {
	n.Helper()
	for _, p := range n.All {
		p.deliverSignal(syscall.SIGTERM)
	}
	for _, p := range n.All {
		p.awaitExitOrKill()
		var exit *exec.ExitError
		if errors.As(p.Err, &exit) && exit.ExitCode() > 0 {
			n.Errorf("%s of %s: %v", p.Cmd, p.Node, p.Err)
		}
	}
	for _, p := range n.All { // after all messages
		if n.Failed() || strings.Contains(p.Log.String(), "DATA RACE") {
			n.Errorf("-- %s:\n%s", p.Node, &p.Log)
		}
	}
	if n.Lab != nil {
		rules, err := n.Run("primary", "sh", "-c", "nft list ruleset; ip rule; ip -6 rule")
		if err != nil || strings.Contains(rules, "mpbond") || strings.Contains(rules, "fwmark") {
			n.Errorf("firewall or routing rules are left: %s, %v", rules, err)
		}
		if err := n.Lab.Down(); err != nil {
			n.Error(err)
		}
		if names, err := lab.List(); err != nil || slices.Contains(names, n.Lab.Name) {
			n.Errorf("labs are left: %v, %v", names, err)
		}
	}
	left, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range left {
		if env, _ := os.ReadFile(file); bytes.Contains(env, []byte("MPBOND_HOME="+n.Dir+"/")) {
			n.Errorf("a process is left: %s", filepath.Dir(file))
		}
	}
}

// Triangle returns lab.Triangle of a valid spec.
func Triangle(t testing.TB, spec string) *lab.Topology {
	t.Helper()
	h, err := lab.Triangle(spec)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Command prepares a program to run in a node.
func (n *Network) Command(node string, argv ...string) *exec.Cmd {
	n.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	if n.Lab != nil {
		var err error
		if cmd, err = n.Lab.Command(context.Background(), node, argv...); err != nil {
			n.Fatal(err)
		}
	}
	cmd.Env = append(os.Environ(), "MPBOND_HOME="+filepath.Join(n.Dir, node), "GORACE=atexit_sleep_ms=0")
	return cmd
}

// Run runs a program in a node until it exits and returns its standard output.
func (n *Network) Run(node string, argv ...string) (string, error) {
	n.Helper()
	cmd := n.Command(node, argv...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, &errs)
	}
	return string(out), err
}

// Must is Run for a program that must succeed.
func (n *Network) Must(node string, argv ...string) string {
	n.Helper()
	out, err := n.Run(node, argv...)
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// JSON runs mpbond in a node and decodes its standard output into into.
func (n *Network) JSON(into any, node string, args ...string) error {
	n.Helper()
	out, err := n.Run(node, append([]string{n.Mpbond}, args...)...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// Process is a process that runs in a node until End or the end of the test.
type Process struct {
	Node string
	Cmd  *exec.Cmd
	Log  Journal       // standard output and standard error
	Done chan struct{} // closed when the process has exited
	Err  error         // exit error, valid once Done is closed

	t testing.TB
}

// Start starts a program in a node and returns at once.
func (n *Network) Start(node string, argv ...string) *Process {
	n.Helper()
	return n.StartCommand(node, n.Command(node, argv...))
}

// StartCommand starts a program that is prepared to run in a node and returns at once. If it leads
// a process group, signals go to the group.
func (n *Network) StartCommand(node string, cmd *exec.Cmd) *Process {
	n.Helper()
	p := &Process{Node: node, Cmd: cmd, Done: make(chan struct{}), t: n.TB}
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Log, &p.Log
	if err := p.Cmd.Start(); err != nil {
		n.Fatal(err)
	}
	go func() {
		p.Err = p.Cmd.Wait()
		close(p.Done)
	}()
	n.All = append(n.All, p)
	return p
}

// End sends a signal to a process and waits until it has exited. It may have exited before.
func (p *Process) End(s os.Signal) {
	p.t.Helper()
	p.deliverSignal(s)
	p.awaitExitOrKill()
}

// deliverSignal sends a signal to a process that may have exited, or to the process group that it
// leads.
func (p *Process) deliverSignal(s os.Signal) {
	if attr := p.Cmd.SysProcAttr; attr != nil && attr.Setpgid {
		_ = syscall.Kill(-p.Cmd.Process.Pid, s.(syscall.Signal))
		return
	}
	_ = p.Cmd.Process.Signal(s)
}

var shownCode = regexp.MustCompile(`mpbond pair (\S+)`)

// AwaitCode waits until a process shows a pairing code and returns it.
func (p *Process) AwaitCode() (code string) {
	p.t.Helper()
	Eventually(p.t, func() error {
		m := shownCode.FindStringSubmatch(p.Log.String())
		if m == nil {
			return fmt.Errorf("%s shows no code:\n%s", p.Node, &p.Log)
		}
		code = m[1]
		return nil
	})
	return code
}

// awaitExitOrKill waits until the process has exited, and kills it after Patience.
func (p *Process) awaitExitOrKill() {
	p.t.Helper()
	select {
	case <-p.Done:
	case <-time.After(Patience):
		p.t.Errorf("%s does not end", p.Cmd)
		p.deliverSignal(syscall.SIGKILL)
		<-p.Done
	}
}

// NewClient returns an API client of the role that runs in a node. It is closed when the test ends.
func (n *Network) NewClient(node, role string) *client.Client {
	c := client.New(filepath.Join(n.Dir, node, "run", role+".sock"))
	n.Cleanup(c.Close)
	return c
}

// Status returns the status of the role that runs in a node.
func (n *Network) Status(node, role string) (s api.Status, err error) {
	c := client.New(filepath.Join(n.Dir, node, "run", role+".sock"))
	defer c.Close()
	return c.Status(n.Context(), false)
}

// Up returns the primary's subflows that are up.
func (n *Network) Up() (up []api.Subflow, err error) {
	s, err := n.Status("primary", "primary")
	for _, b := range s.Bonds {
		for _, p := range b.Subflows {
			if p.State == api.Up {
				up = append(up, p)
			}
		}
	}
	return up, err
}

// Await waits until exactly want subflows are up.
func (n *Network) Await(want int) {
	n.Helper()
	Eventually(n, func() error {
		up, err := n.Up()
		if err == nil && len(up) != want {
			err = fmt.Errorf("%d subflows are up: %+v", len(up), up)
		}
		return err
	})
}

// LinkBytes returns the bytes that a link of the lab has delivered, in both directions.
func (n *Network) LinkBytes(link string) (sum int64) {
	n.Helper()
	s, err := n.Lab.Stats(false)
	if err != nil {
		n.Fatal(err)
	}
	for _, line := range s.Link(link).Lines {
		sum += int64(line.Count.Delivered.Bytes)
	}
	return sum
}

// Counters returns the bytes that an interface of a node has received and sent, by the kernel's
// counters. Like a modem, an emulated link has only IP headers.
func (n *Network) Counters(node, link string) (rx, tx int64) {
	n.Helper()
	for line := range strings.Lines(n.Must(node, "cat", "/proc/net/dev")) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		if f := strings.Fields(rest); name == link && len(f) > 8 {
			rx, _ = strconv.ParseInt(f[0], 10, 64)
			tx, _ = strconv.ParseInt(f[8], 10, 64)
		}
	}
	return rx, tx
}
