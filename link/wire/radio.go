// SPDX-License-Identifier: Apache-2.0

package wire

import "fmt"

// Radio is the kind of radio of a link; the cost of its use depends on it. It crosses the network
// as one byte: the list is append-only.
type Radio uint8

// Radios.
const (
	RadioNone Radio = iota // a cable, or unknown
	RadioWiFi
	RadioCellular
	RadioBluetooth
	radioCount
)

var radioNames = [radioCount]string{RadioNone: "none", RadioWiFi: "WiFi", RadioCellular: "cellular",
	RadioBluetooth: "Bluetooth"}

func (r Radio) String() string {
	if r < radioCount {
		return radioNames[r]
	}
	return fmt.Sprintf("radio %d", uint8(r))
}

// readRadio reads a Radio.
func (p *parser) readRadio() Radio {
	r := Radio(p.readByte())
	p.bad = p.bad || r >= radioCount
	return r
}
