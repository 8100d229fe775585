package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"mpbond/api"
	"mpbond/e2e/rig"
)

// TestOwners: the primary tells whose each connection is, whichever way it came
// in and while no rule asks for it: the program or label of this machine's, the
// address of another device's. The server knows of none.
func TestOwners(t *testing.T) {
	n := newNetwork(t)
	n.Start("web", os.Args[0], "lab", "services")
	primary, server := n.Asker("primary", "primary"), n.Asker("server", "server")
	for _, p := range n.All {
		if p.Node == "primary" {
			p.End(syscall.SIGTERM)
		}
	}
	at, err := n.Lab.Topology.Addr("primary", "pipe1")
	if err != nil {
		t.Fatal(err)
	}
	proxy := "http://" + at.String() + ":1080"
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--proxy", proxy[len("http://"):])
	rig.Eventually(t, func() error { // a connection waits for a subflow
		_, err := n.Status("primary", "primary")
		return err
	})
	begin := func(node string, argv ...string) {
		cmd := n.Command(node, argv...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait() // which tells of the signal
		})
	}
	download := []string{"curl", "-sS", "-o", "/dev/null", "--limit-rate", "100k", fmt.Sprintf("http://web/%d", int64(1)<<33)}
	run := func(argv []string, flags ...string) []string {
		return append(append(append([]string{n.Mpbond, "run"}, flags...), "--"), argv...)
	}
	begin("primary", append(download, "-x", proxy)...)
	begin("helper1", append(download, "-x", proxy)...)
	begin("primary", run(download)...)
	begin("primary", run(download, "--label", "x")...)
	begin("primary", run([]string{"sh", "-c", `"$@" && exec sleep 60`, "sh", os.Args[0], "lab", "probe", "echo", net.JoinHostPort(n.web4, echoPort)}, "--label", "y")...)
	far, err := n.Lab.Topology.Addr("helper1", "pipe1")
	if err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, func() error {
		count := map[string]int{}
		list, err := primary.Streams(t.Context())
		for _, s := range list {
			program := s.Program[strings.LastIndexByte(s.Program, '/')+1:]
			count[fmt.Sprintf("%s, program %q of %q, label %q", s.App, program, s.User, s.Label)]++
		}
		if err != nil || count[`curl, program "curl" of "root", label ""`] != 2 || count[`x, program "curl" of "root", label "x"`] != 1 ||
			count["from "+far.String()+`, program "" of "", label ""`] != 1 {
			return fmt.Errorf("%v, %v, of %+v", count, err, list)
		}
		return nil
	})
	rig.Eventually(t, func() error {
		list, err := primary.Flows(t.Context())
		for _, f := range list {
			if f.App == "y" && f.Label == "y" && f.Program != "" && f.UpBytes > 0 && f.DownBytes > 0 {
				return nil
			}
		}
		return fmt.Errorf("flows: %+v, %v", list, err)
	})
	if out := n.Must("primary", n.Mpbond, "status", "--why"); !strings.Contains(out, " of x (/") || !strings.Contains(out, " of curl (/") {
		t.Errorf("the status does not tell whose streams are:\n%s", out)
	}
	list, err := server.Streams(t.Context())
	if err != nil || len(list) != 4 {
		t.Errorf("at the server: %+v, %v", list, err)
	}
	for _, s := range list {
		if s.Owner != (api.Owner{}) {
			t.Errorf("the server knows whose a stream is: %+v", s)
		}
	}
}
