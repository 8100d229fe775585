// SPDX-License-Identifier: Apache-2.0

// Package pair tests how three devices that do not know each other become a bond: pairing codes,
// discovery, and revocation. The real program runs in the lab, with one process for each command
// that a person types.
package pair

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"mpbond/e2e/rig"
)

const mb = 1_000_000

func TestMain(m *testing.M) { rig.Main(m, nil) }

// network is an emulated network with the real program, in which no device has a key yet.
type network struct{ *rig.Network }

func newNetwork(t testing.TB, links string) *network {
	t.Helper()
	return &network{rig.New(t, rig.Options{Lab: rig.Triangle(t, links)})}
}

// runJSON runs mpbond in a node and decodes its output.
func (n *network) runJSON(into any, node string, args ...string) {
	n.Helper()
	if err := n.JSON(into, node, args...); err != nil {
		n.Fatal(err)
	}
}

// stripAddress returns a pairing code without its address, so that the device must be discovered.
func stripAddress(code string) string { s, _, _ := strings.Cut(code, "@"); return s }

// checkDownload has an app on the primary download size bytes and checks them.
func (n *network) checkDownload(size int64) {
	n.Helper()
	out := n.Must("primary", n.Mpbond, "run", "--",
		"curl", "-sSf", "--max-time", "20", fmt.Sprintf("http://web/%d", size))
	want, _ := io.ReadAll(rig.Noise(size))
	if out != string(want) {
		n.Errorf("%d of %d bytes arrived, or wrong ones", len(out), size)
	}
}

// changeAddress removes all addresses of a link from a node and adds another one, which it returns.
func (n *network) changeAddress(node, link string) (next string) {
	n.Helper()
	old, err := n.Lab.Topology.Addr(node, link)
	if err != nil {
		n.Fatal(err)
	}
	b := old.As4()
	next = fmt.Sprintf("%d.%d.%d.%d", b[0], b[1], b[2], b[3]+20)
	n.Must(node, "ip", "-4", "addr", "flush", "dev", link)
	n.Must(node, "ip", "-6", "addr", "flush", "dev", link, "scope", "global")
	n.Must(node, "ip", "addr", "add", next+"/24", "dev", link)
	return next
}
