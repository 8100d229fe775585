package device

// Cell is where the control messages of the mobile cells of an interface are heard,
// so that senders to this device are told how much it can have now (PBE-CC,
// docs/explanation/pbe.md).
type Cell struct {
	// Messages is where they come from: "unix:PATH", "tcp:HOST:PORT", or the path of a FIFO
	// or a recording, which is played once. Whoever is there is believed.
	Messages string `toml:"messages"`
	// RNTI is what the cells call this device, 11 to 65523; 0: as Messages say, which know it if a modem told them.
	RNTI uint16 `toml:"rnti"`
	// Cells are the numbers of those that may be given to this device, the primary
	// one first; empty: all that Messages are of, by number.
	Cells []uint8 `toml:"cells"`
}
