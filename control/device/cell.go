// SPDX-License-Identifier: Apache-2.0

package device

// Cell configures the source of control messages of the mobile cells of an interface. Senders to
// this device then learn its share of capacity (PBE-CC, docs/explanation/pbe.md).
type Cell struct {
	// Messages is the source of control messages: "unix:PATH", "tcp:HOST:PORT", or the path of a
	// FIFO or of a recording, which is played once. The source is trusted.
	Messages string `toml:"messages"`
	// RNTI is the number that the cells use for this device, 11 to 65523; 0: as the source says,
	// which knows it from a modem, or found by what arrives. The network gives a new one with each connection.
	RNTI uint16 `toml:"rnti"`
	// Cells are the numbers of the cells that may serve this device, the primary cell first. Empty:
	// all cells of the source, by number.
	Cells []uint8 `toml:"cells"`
}
