// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/e2e/rig"
)

// awaitEvent waits for an event that matches, past or future.
func (n *network) awaitEvent(c *client.Client, what string, matches func(api.Event) bool) (e api.Event) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), rig.Patience)
	defer cancel()
	for update, err := range c.Events(ctx, 0) {
		if err != nil {
			n.Fatalf("no event for %s: %v", what, err)
		}
		if update.Change != nil && matches(*update.Change) {
			return *update.Change
		}
	}
	return e
}

// TestAPI: on all three roles the API of the real program reports state and changes, and applies
// changes.
func TestAPI(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t)
	primary, server, helper := n.NewClient("primary", "primary"), n.NewClient("server", "server"),
		n.NewClient("helper1", "helper")
	n.awaitEvent(primary, "the helper's arrival", func(e api.Event) bool {
		return e.Kind == "device_up" && e.Device == "phone"
	})
	n.awaitEvent(primary, "the helper's pipe", func(e api.Event) bool {
		return e.Kind == "pipe_up" && e.Device == "phone" && e.Text != ""
	})
	n.awaitEvent(primary, "the direct subflow", func(e api.Event) bool {
		return e.Kind == "subflow_up" && e.Device == "laptop" && e.Reason == "direct"
	})
	first := n.awaitEvent(primary, "the helped subflow", func(e api.Event) bool {
		return e.Kind == "subflow_up" && e.Device == "phone"
	})
	n.awaitEvent(server, "the primary's arrival", func(e api.Event) bool {
		return e.Kind == "device_up" && e.Device == "laptop"
	})
	relay := n.awaitEvent(helper, "the relay", func(e api.Event) bool {
		return e.Kind == "relay_up" && e.Device == "laptop"
	})

	// Each role lists the devices it sees.
	for _, c := range []struct {
		at   *client.Client
		want string
	}{
		{primary, "home on=true subflows=2, laptop self on=true subflows=1, phone on=true subflows=1"},
		{server, "laptop on=true subflows=2"},
		{helper, "home on=false subflows=0, laptop on=true subflows=1, phone self on=true subflows=1"},
	} {
		rig.Eventually(t, func() error {
			list, err := c.at.Devices(t.Context())
			var words []string
			for _, d := range list {
				self := ""
				if d.Self {
					self = " self"
				}
				if c.at != server || !d.Self { // the server's own name is this machine's
					words = append(words, fmt.Sprintf("%s%s on=%v subflows=%d", d.Name, self, d.Online, d.Subflows))
				}
			}
			slices.Sort(words)
			if got := strings.Join(words, ", "); err != nil || got != c.want {
				return fmt.Errorf("devices %s, %v; want %s", got, err, c.want)
			}
			return nil
		})
	}
	rig.Eventually(t, func() error {
		pipes, err := primary.Pipes(t.Context())
		if !slices.ContainsFunc(pipes, func(p api.Pipe) bool {
			return p.Device == "phone" && p.State == api.PipeCarries && p.Bond == first.Bond && p.Subflow == first.Subflow &&
				p.Via != ""
		}) {
			return fmt.Errorf("no pipe carries subflow %d: %+v, %v", first.Subflow, pipes, err)
		}
		return nil
	})
	if list, err := helper.Subflows(t.Context()); err != nil || len(list) != 1 || list[0].Peer != "laptop" ||
		uint64(list[0].ID) != relay.Relay {
		t.Errorf("the helper's subflows: %+v, %v", list, err)
	}
	if list, err := helper.Streams(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("a helper's streams: %+v, %v", list, err)
	}

	// A stream is reported and can be reset.
	seen := uint64(0)
	for _, at := range []*client.Client{primary, server} {
		x := n.startTransfer(fmt.Sprintf("http://web/%d", int64(1)<<33))
		<-x.begun
		list, err := at.Streams(t.Context())
		// The newest stream is first: the server may not know yet that the previous one has ended.
		if err != nil || len(list) == 0 || list[0].ID <= seen || list[0].Dest != "web:80" ||
			list[0].DownBytes+list[0].UpBytes == 0 {
			t.Fatalf("streams: %+v, %v", list, err)
		}
		id := list[0].ID
		seen = id
		n.awaitEvent(at, "the stream's beginning", func(e api.Event) bool {
			return e.Kind == "stream_open" && e.Stream == id && e.Text == "web:80"
		})
		if err := at.ResetStream(t.Context(), list[0].Bond, id); err != nil {
			t.Error(err)
		}
		n.expectReset(x, rig.Patience)
		n.awaitEvent(at, "the stream's end", func(e api.Event) bool {
			return e.Kind == "stream_close" && e.Stream == id && strings.Contains(e.Reason, "by hand")
		})
	}

	// Each role can close a subflow, and a new one replaces it.
	last := first.Subflow
	for _, end := range []func(bond string, id uint32) error{
		func(bond string, id uint32) error { return primary.CloseSubflow(t.Context(), bond, id) },
		func(bond string, id uint32) error { return server.CloseSubflow(t.Context(), bond, id) },
		func(string, uint32) error {
			list, err := helper.Subflows(t.Context())
			if err == nil {
				err = helper.CloseSubflow(t.Context(), "", list[len(list)-1].ID)
			}
			return err
		},
	} {
		if err := end(first.Bond, last); err != nil {
			t.Fatal(err)
		}
		n.awaitEvent(primary, fmt.Sprintf("the end of %d", last),
			func(e api.Event) bool { return e.Kind == "subflow_down" && e.Subflow == last })
		last = n.awaitEvent(primary, "the next subflow", func(e api.Event) bool {
			return e.Kind == "subflow_up" && e.Device == "phone" && e.Subflow > last
		}).Subflow
	}
	if _, err := n.Run("primary", "curl", "-sSf", "--max-time", "20", "-x", "http://127.0.0.1:1080", "-o", "/dev/null",
		fmt.Sprintf("http://web/%d", mb)); err != nil {
		t.Error(err)
	}

	// An app announces the chunk it waits for on its connection.
	app := n.Command("primary", "curl", "-sS", "--local-port", "40123", "-x", "http://127.0.0.1:1080", "-o", "/dev/null",
		fmt.Sprintf("http://web/%d", int64(1)<<33))
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, func() error { return primary.MarkChunk(t.Context(), api.Chunk{App: "127.0.0.1:40123", Bytes: mb}) })
	for want, chunk := range map[fault.Kind]api.Chunk{fault.NotFound: {App: "127.0.0.1:1", Bytes: 1},
		fault.Usage: {App: "127.0.0.1:40123"}} {
		if err := primary.MarkChunk(t.Context(), chunk); !fault.Is(err, want) || fault.HintOf(err) == "" {
			t.Errorf("%+v: %v", chunk, err)
		}
	}
	err := server.MarkChunk(t.Context(), api.Chunk{App: "127.0.0.1:40123", Bytes: mb})
	if !fault.Is(err, fault.Unsupported) {
		t.Errorf("at the server: %v", err)
	}
	_ = app.Process.Kill()
	_ = app.Wait()

	// The command exits with status 0 when interrupted.
	cmd := n.Command("primary", n.Mpbond, "events", "--json", "--all")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var line struct {
		Role, Kind string
		Seq        uint64
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &line) != nil || line.Role != "primary" || line.Kind == "" ||
		line.Seq != 1 {
		t.Errorf("the first event: %s", lines.Bytes())
	}
	_ = cmd.Process.Signal(syscall.SIGINT)
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		t.Errorf("mpbond events ended with %v", err)
	}

	n.checkMetrics("primary", "mpbond_subflow_received_bytes_total", "mpbond_streams_total", "mpbond_events_total",
		"mpbond_device_online")
	n.checkMetrics("server", "mpbond_subflow_sent_bytes_total", "mpbond_streams_total")
	n.checkMetrics("helper1", "mpbond_helper_relayed_bytes_total", "mpbond_events_total")
}

// TestPause: a paused device carries nothing, at a primary and at a helper, also after a restart.
// It carries again when it is resumed.
func TestPause(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	const pausedThere = "paused by its owner"
	n := newNetwork(t)
	primary, helper := n.NewClient("primary", "primary"), n.NewClient("helper1", "helper")
	seen := uint64(0) // the primary's last event so far
	// awaitPhoneEvents waits for events about the phone in any order. Each is a kind and a part of
	// its reason.
	awaitPhoneEvents := func(what ...[2]string) {
		t.Helper()
		after := seen
		for _, w := range what {
			e := n.awaitEvent(primary, fmt.Sprint(w), func(e api.Event) bool {
				return e.Seq > after && e.Kind == w[0] && e.Device == "phone" && strings.Contains(e.Reason, w[1])
			})
			seen = max(seen, e.Seq)
		}
	}
	downloadOnce := func() { // over the other subflow
		t.Helper()
		n.Must("primary", "curl", "-sSf", "--max-time", "20", "-x", "http://127.0.0.1:1080", "-o", "/dev/null",
			fmt.Sprintf("http://web/%d", mb))
	}
	expectUnused := func() {
		t.Helper()
		downloadOnce()
		if list := n.helpedSubflows(); len(list) > 0 {
			t.Errorf("a paused phone has subflows: %+v", list)
		}
	}
	awaitPhoneEvents([2]string{"subflow_up", "helped"})

	// Pause the phone at the primary, by the command.
	n.Must("primary", n.Mpbond, "pause", "phone")
	awaitPhoneEvents([2]string{"device_paused"}, [2]string{"device_suspended", pausedThere}, [2]string{"subflow_down"})
	rig.Eventually(t, func() error {
		if text := n.Must("primary", n.Mpbond, "status"); !strings.Contains(text, pausedThere) {
			return fmt.Errorf("status: %s", text)
		}
		return nil
	})
	expectUnused()
	if list, err := primary.Devices(t.Context()); err != nil ||
		!slices.ContainsFunc(list, func(d api.Device) bool {
			return d.Name == "phone" && d.Paused &&
				d.Suspended == pausedThere
		}) {
		t.Errorf("%+v, %v", list, err)
	}
	n.processIn("primary").End(syscall.SIGTERM)
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop")
	n.Await(1)
	seen = 0
	awaitPhoneEvents([2]string{"device_suspended", pausedThere})
	expectUnused()
	if err := primary.PauseDevice(t.Context(), "phone", false); err != nil {
		t.Fatal(err)
	}
	awaitPhoneEvents([2]string{"device_resumed"}, [2]string{"device_unsuspended"}, [2]string{"subflow_up", "helped"})

	// Pause the laptop at the phone.
	if err := helper.PauseDevice(t.Context(), "laptop", true); err != nil {
		t.Fatal(err)
	}
	awaitPhoneEvents([2]string{"subflow_down"}, [2]string{"device_suspended", "it refuses: this device is paused there"})
	n.awaitEvent(helper, "the end of the relay", func(e api.Event) bool {
		return e.Kind == "relay_down" && strings.Contains(e.Reason, "paused")
	})
	expectUnused()
	n.Must("helper1", n.Mpbond, "resume", "laptop")
	awaitPhoneEvents([2]string{"subflow_up", "helped"})
	downloadOnce()
}

// checkMetrics checks that a role serves these metrics and that none is 0.
func (n *network) checkMetrics(node string, names ...string) {
	n.Helper()
	role := strings.TrimSuffix(node, "1")
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(n.Dir, node, "run", role+".sock"))
		}}}
	answer, err := web.Get("http://mpbond/metrics")
	if err != nil {
		n.Fatal(err)
	}
	defer answer.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		n.Fatal(err)
	}
	for _, name := range names {
		sum := 0.0
		for _, m := range families[name].GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
		if sum == 0 {
			n.Errorf("%s: %s is %v", node, name, families[name])
		}
	}
}
