// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/wire"
	"mpbond/node/probe"
)

// maxReportAge is the largest difference between a report's time and our clock. Older reports,
// which others could replay, are ignored.
const maxReportAge = time.Hour

// signedReport returns the report that a helper has left at the server for this device, nil if
// there is none. The server verifies nothing: only a report for this device that is signed with the
// helper's key counts.
func signedReport(list []probe.Report, helper identity.Peer, self identity.PublicKey, now time.Time) *Problem {
	for _, r := range slices.Backward(list) {
		f, err := wire.ParseReport(r.Frame)
		if err != nil || identity.PublicKey(f.From) != helper.Key || identity.PublicKey(f.To) != self ||
			!helper.Key.Verify(f.Signed(), f.Sig) {
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
