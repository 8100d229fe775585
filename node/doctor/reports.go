package doctor

import (
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/wire"
	"mpbond/node/probe"
)

// maxReportAge is how far the clocks of a helper and this device may be apart for a report to
// count: an old one, left again by somebody else, does not.
const maxReportAge = time.Hour

// signedReport returns what a helper has left at the server for this device, nil for nothing.
// The server vouches for none of it: only a report that the helper's own key has signed,
// for this device, counts.
func signedReport(list []probe.Report, helper identity.Peer, self identity.PublicKey, now time.Time) *Problem {
	for _, r := range slices.Backward(list) {
		f, err := wire.ParseReport(r.Frame)
		if err != nil || identity.PublicKey(f.From) != helper.Key || identity.PublicKey(f.To) != self || !helper.Key.Verify(f.Signed(), f.Sig) {
			continue
		}
		if off := now.Sub(time.Unix(f.Unix, 0)); off > maxReportAge || off < -maxReportAge {
			continue
		}
		p := &Problem{Kind: fault.Unreachable, By: helper.Name, At: f.Address, Text: f.Code.String()}
		switch f.Code {
		case wire.CodeTimeout:
			p.Cause = fault.CauseNoAnswer
		case wire.CodeConnRefused:
			p.Cause = fault.CauseRefused
		case wire.CodeNameNotFound:
			p.Cause = fault.CauseNoName
		}
		return p
	}
	return nil
}
