// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"path/filepath"
	"time"

	apiclient "mpbond/api/client"
	"mpbond/base/unit"
	"mpbond/lab/mptcp"
)

// HeldLog says how many bytes waited for earlier ones at the receiver of a download, at the end of each step.
// Of mpbond those count that wait in the bond, of MPTCP also those that wait in one subflow.
type HeldLog struct {
	Step  float64      `json:"step_seconds"`
	Bytes []unit.Bytes `json:"bytes"`
}

// heldStep is the step of a HeldLog.
const heldStep = 100 * time.Millisecond

// sampleHeld asks mpbond at the primary every heldStep for its held bytes, if the spec asks for these. The
// returned function ends that; it returns nil with other schemes.
func (s *session) sampleHeld(ctx context.Context, b *Bench, t Transfer) (stop func() *HeldLog) {
	if _, ok := s.schemes[t.Scheme].(*mpbondScheme); !s.spec.Held || !ok {
		return func() *HeldLog { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan *HeldLog, 1)
	go func() {
		c := apiclient.New(filepath.Join(mpbondHome(b, "primary"), "run", "primary.sock"))
		defer c.Close()
		log := &HeldLog{Step: heldStep.Seconds()}
		tick := time.NewTicker(heldStep)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				done <- log
				return
			case <-tick.C:
			}
			st, err := c.Status(ctx, false)
			if err != nil {
				continue // the primary begins, or the transfer has ended
			}
			n := unit.Bytes(0)
			for _, bond := range st.Bonds {
				n += bond.ReorderBytes
			}
			log.Bytes = append(log.Bytes, n)
		}
	}()
	return func() *HeldLog {
		cancel()
		return <-done
	}
}

// readHeld reads the bytes that a connection of Multipath TCP held since a time into the result, if the spec
// asks for them and mpbond has not reported them.
func (s *session) readHeld(b *Bench, begin time.Time, r *Result) error {
	if !s.spec.Held || r.Held != nil {
		return nil
	}
	packets, err := s.readCaptures(b, begin)
	var h mptcp.Held
	log := &HeldLog{Step: heldStep.Seconds()}
	for _, p := range packets {
		log.extendTo(p.at.Sub(begin), unit.Bytes(h.Bytes()))
		h.AddPacket(p.data)
	}
	if h.HasConnection() { // else it is plain TCP
		r.Held = log
	}
	return err
}

// extendTo adds the steps that end by a time, throughout which n bytes waited.
func (l *HeldLog) extendTo(at time.Duration, n unit.Bytes) {
	for time.Duration(len(l.Bytes)+1)*heldStep <= at {
		l.Bytes = append(l.Bytes, n)
	}
}
