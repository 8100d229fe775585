package api

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"

	"mpbond/base/unit"
)

// Usage is the answer to GET /v2/usage: what mpbond had this device's links
// carry, as the network counts it: IP packets with their headers, and each time
// that something was sent again.
type Usage struct {
	Role string `json:"role"`
	Name string `json:"name"` // of this device
	// Days and Months are what was used in each, oldest first; never null. A
	// month begins on the reset day of the link's cap, or else of that of all links.
	Days   []UsageEntry `json:"days"`
	Months []UsageEntry `json:"months"`
	// NotSaved is why a restart would forget it, "" if it would not.
	NotSaved string `json:"not_saved,omitempty"`
	Caps     []Cap  `json:"caps"` // those that are set; never null
}

// Cap is how far a link, or another device, is from its cap: the nearest, where it
// has several, or, of those that are used up, the one that lasts longest.
type Cap struct {
	Name      string     `json:"name"`   // of the link; of this device, if the cap is of all its links together; of another device, if it is of what one carries for the other
	Period    string     `json:"period"` // "daily" or "monthly"
	CapBytes  unit.Bytes `json:"cap_bytes"`
	UsedBytes unit.Bytes `json:"used_bytes"` // of it
	StopBytes unit.Bytes `json:"stop_bytes"` // it is stopped when so much of it is used
	RoomBytes unit.Bytes `json:"room_bytes"` // until it is stopped, by any of its caps
	State     string     `json:"state"`      // "fine", "warned", "reached": then nothing is carried; or CapNotCounted
	Until     time.Time  `json:"until"`      // the period ends
	Text      string     `json:"text"`       // the same for people
}

// CapNotCounted is the state of a cap that nothing is counted for: nothing here is
// called so, or the system does not tell what links carry. Its text says
// which.
const CapNotCounted = "not_counted"

// UsageEntry is what one link carried in one period, for one purpose and device.
type UsageEntry struct {
	From  string `json:"from"`  // first day, YYYY-MM-DD, local time
	Until string `json:"until"` // first day after it
	Link  string `json:"link"`  // network interface
	// Purpose is "direct" (a direct subflow at its primary), "hs-path" (at a
	// helper, by the Internet), "onload" (there, for a primary that onloads), "pipe"
	// (between primary and helper, locally) or "subflow" (at a server).
	Purpose   string     `json:"purpose"`
	Device    string     `json:"device,omitempty"`    // at the other end, or whose it was; "" if that is not known
	DeviceID  string     `json:"device_id,omitempty"` // the same
	DownBytes unit.Bytes `json:"down_bytes"`          // to this device
	UpBytes   unit.Bytes `json:"up_bytes"`            // from it
	// RadioJoules are what the link's radio took for it, as estimated from bytes and
	// what has been published of such radios; nothing else of the device is in it.
	// While it carries several things at once, each has a share by its bytes. Left out
	// where no radio is known.
	RadioJoules unit.Joules `json:"radio_joules,omitempty"`
}

// CSV writes days and months as a table with a line of headings.
func (u Usage) CSV(w io.Writer) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"role", "period", "from", "until", "link", "purpose", "device", "device_id", "down_bytes", "up_bytes", "radio_joules"})
	for _, period := range []struct {
		name string
		list []UsageEntry
	}{{"day", u.Days}, {"month", u.Months}} {
		for _, r := range period.list {
			_ = c.Write([]string{u.Role, period.name, r.From, r.Until, r.Link, r.Purpose, r.Device, r.DeviceID,
				strconv.FormatInt(int64(r.DownBytes), 10), strconv.FormatInt(int64(r.UpBytes), 10), formatJoules(r.RadioJoules)})
		}
	}
	c.Flush()
	return c.Error()
}

// formatJoules is an energy in a table, empty where there is no estimate.
func formatJoules(j unit.Joules) string {
	if j == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(j), 'f', 3, 64)
}
