// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
)

// awaitHelpersWorthwhile polls the status until it says that laptop and phone carry a stream because
// that is worth their energy. If it does not say so until end, it returns the last status.
func (n *network) awaitHelpersWorthwhile(end <-chan struct{}) string {
	const both = " (helpers save more time than their energy is worth; expected in " // subflows as they came up
	for {
		out, err := n.Run("primary", n.Mpbond, "status", "--why")
		if strings.Contains(out, "down by laptop, phone"+both) || strings.Contains(out, "down by phone, laptop"+both) {
			return ""
		}
		select {
		case <-end:
			return fmt.Sprint(out, err)
		default:
		}
	}
}

// TestHelpersRadioSleeps: a helper whose link is a cellular radio, by its interface's name, carries
// nothing of small answers while the direct path is not late with them. It carries its part of a
// large one, and the status says why. The primary stores what they carried.
func TestHelpersRadioSleeps(t *testing.T) {
	t.Parallel() // it compares bytes, not times
	topology := rig.Triangle(t, "10/10/10")
	topology.Link["wwan0"] = topology.Link["hs1"]
	delete(topology.Link, "hs1")
	topology.Node["helper1"].Routes = []string{"default via wwan0"}
	n := newNetworkWithoutRace(t, topology)
	downloadBytes := func(size int) {
		t.Helper()
		got := n.Must("primary", "curl", "-sSf", "--max-time", "30", "--socks5-hostname", "127.0.0.1:1080", "-o",
			"/dev/null", "-w", "%{size_download}", fmt.Sprintf("http://web/%d", size))
		if got != fmt.Sprint(size) {
			t.Fatalf("got %s of %d bytes", got, size)
		}
	}
	phoneSubflow := func() api.Subflow {
		t.Helper()
		s, err := n.Status("server", "server")
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Bonds[0].Subflows {
			if p.Device == "phone" {
				return p
			}
		}
		t.Fatalf("no subflow by the phone: %+v", s.Bonds[0].Subflows)
		return api.Subflow{}
	}
	downloadBytes(20_000)        // the direct path becomes warm
	time.Sleep(12 * time.Second) // the helper's radio sleeps 11.6 s after its last packet
	before, rescued := phoneSubflow(), n.rescuedBytes()
	if before.Radio != "cellular" {
		t.Errorf("its radio is %q", before.Radio)
	}
	for range 5 {
		downloadBytes(20_000)
	}
	after := phoneSubflow()
	if rescued = n.rescuedBytes() - rescued; rescued > 0 {
		t.Logf("the direct path was late with %v", rescued)
	} else if most := 2 * unit.KB; after.RxBytes-before.RxBytes > most || after.TxBytes-before.TxBytes > most {
		t.Errorf("the helper carried %v of answers of 20 KB, and %v the other way", after.TxBytes-before.TxBytes,
			after.RxBytes-before.RxBytes)
	}
	whole, why := make(chan struct{}), make(chan string, 1)
	go func() { why <- n.awaitHelpersWorthwhile(whole) }()
	downloadBytes(5_000_000)
	close(whole)
	if after := phoneSubflow(); after.TxBytes-before.TxBytes < unit.MB {
		t.Errorf("the helper carried %v of 5 MB", after.TxBytes-before.TxBytes)
	}
	if text := <-why; text != "" {
		t.Errorf("status --why during the download never says that helpers are worthwhile:\n%s", text)
	}
	advice := n.Must("primary", n.Mpbond, "advise", "--size", "5MB")
	for _, want := range []string{"laptop", "phone", "cellular", "transfer, 5 MB down", " used\n"} {
		if !strings.Contains(advice, want) {
			t.Errorf("%q is not in the advice:\n%s", want, advice)
		}
	}
	rig.Eventually(t, func() error { // the stream ends a round trip after curl
		var past api.PastForecasts
		err := json.Unmarshal([]byte(n.Must("primary", n.Mpbond, "advise", "--history", "--json")), &past)
		if err == nil && (len(past.Forecasts) == 0 || past.Forecasts[0].Bytes < 4_500_000 ||
			past.Forecasts[0].Bytes > 5_000_000 || past.Forecasts[0].Seconds <= 0 || past.Forecasts[0].ExpectedSeconds <= 0) {
			return fmt.Errorf("5 MB are not in the history: %+v", past)
		}
		return err
	})

	n.processIn("primary").End(syscall.SIGTERM)
	history, err := os.ReadFile(filepath.Join(n.Dir, "primary", "history.json"))
	if err != nil || !strings.Contains(string(history), `"sizes"`) || strings.Contains(string(history), n.web4) {
		t.Errorf("%s: %v", history, err)
	}
	data, err := os.ReadFile(filepath.Join(n.Dir, "primary", "places.json"))
	if err != nil || !strings.Contains(string(data), `"phone"`) || !strings.Contains(string(data), `"laptop"`) {
		t.Errorf("%s: %v", data, err)
	}
}
