package wire

import "fmt"

// Radio is what kind of radio carries a link, for what it costs to use it. It
// crosses the network as one byte: the list is append-only.
type Radio uint8

// Radios.
const (
	RadioNone Radio = iota // a cable, or not known
	RadioWiFi
	RadioCellular
	RadioBluetooth
	radioCount
)

var radioNames = [radioCount]string{RadioNone: "none", RadioWiFi: "WiFi", RadioCellular: "cellular", RadioBluetooth: "Bluetooth"}

func (r Radio) String() string {
	if r < radioCount {
		return radioNames[r]
	}
	return fmt.Sprintf("radio %d", uint8(r))
}

// readRadio takes a Radio off a payload.
func (p *parser) readRadio() Radio {
	r := Radio(p.readByte())
	p.bad = p.bad || r >= radioCount
	return r
}
