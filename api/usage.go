// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"mpbond/base/unit"
)

// Usage is the answer to GET /v2/usage: what this device's links carried for mpbond, as the network
// counts: IP packets with headers, including retransmissions.
type Usage struct {
	Role string `json:"role"`
	Name string `json:"name"` // of this device
	// Days and Months list the usage of each, oldest first; never null. A month begins on the reset
	// day of the link's cap, else of the cap of all links.
	Days   []UsageEntry `json:"days"`
	Months []UsageEntry `json:"months"`
	// NotSaved is why a restart would lose it, "" if it would not.
	NotSaved string `json:"not_saved,omitempty"`
	Caps     []Cap  `json:"caps"` // configured caps; never null
}

// Cap is how much of a cap a link, or another device, has used. Of several caps it is the nearest
// or, of used-up ones, the one that lasts longest.
type Cap struct {
	// of the link; of this device, for a cap of all its links; of another device, for a cap of what
	// one carries for the other
	Name      string     `json:"name"`
	Period    string     `json:"period"` // "daily" or "monthly"
	CapBytes  unit.Bytes `json:"cap_bytes"`
	UsedBytes unit.Bytes `json:"used_bytes"` // of the cap
	StopBytes unit.Bytes `json:"stop_bytes"` // traffic stops when so much is used
	RoomBytes unit.Bytes `json:"room_bytes"` // until it stops, by any of its caps
	State     string     `json:"state"`      // "fine", "warned", "reached" (nothing is carried) or CapNotCounted
	Until     time.Time  `json:"until"`      // end of the period
	Text      string     `json:"text"`       // the same for people
}

// CapNotCounted is the state of a cap that counts nothing: nothing here has its name, or the system
// does not count the bytes of links. Its text says which.
const CapNotCounted = "not_counted"

// UsageEntry is what one link carried in one period, for one purpose and device.
type UsageEntry struct {
	From  string `json:"from"`  // first day, YYYY-MM-DD, local time
	Until string `json:"until"` // first day after it
	Link  string `json:"link"`  // network interface
	// Purpose is "direct" (a direct subflow at its primary), "hs-path" (at a helper, over the
	// Internet), "onload" (there, for a primary that onloads), "pipe" (between primary and helper,
	// local) or "subflow" (at a server).
	Purpose   string     `json:"purpose"`
	Device    string     `json:"device,omitempty"`    // at the other end, or that it was carried for; "" if unknown
	DeviceID  string     `json:"device_id,omitempty"` // the same
	DownBytes unit.Bytes `json:"down_bytes"`          // to this device
	UpBytes   unit.Bytes `json:"up_bytes"`            // from it
	// RadioJoules is the energy that the link's radio spent for it, estimated from bytes and
	// published measurements; nothing else of the device is included. Concurrent traffic shares it
	// by bytes. Omitted if no radio is known.
	RadioJoules unit.Joules `json:"radio_joules,omitempty"`
}

// CSV writes days and months as a table with a header line.
func (u Usage) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write(
		[]string{
			"role",
			"period",
			"from",
			"until",
			"link",
			"purpose",
			"device",
			"device_id",
			"down_bytes",
			"up_bytes",
			"radio_joules",
		},
	)
	for _, period := range []struct {
		name string
		list []UsageEntry
	}{{"day", u.Days}, {"month", u.Months}} {
		for _, r := range period.list {
			_ = c.Write([]string{u.Role, period.name, r.From, r.Until, r.Link, r.Purpose, r.Device, r.DeviceID,
				strconv.FormatInt(
					int64(r.DownBytes),
					10,
				), strconv.FormatInt(int64(r.UpBytes), 10), formatUsageJoules(r.RadioJoules)})
		}
	}
	c.Flush()
	return c.Error()
}

// formatUsageJoules formats an energy for a table, empty without an estimate.
func formatUsageJoules(j unit.Joules) string {
	if j == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(j), 'f', 3, 64)
}
