// SPDX-License-Identifier: Apache-2.0

// Package flow runs bulk flows between two programs for comparisons on the same links: over
// pbe/transport with any controller of pbe/cc, and over the kernel's TCP with any of its
// controllers. The lab runs the two programs in nodes of an emulated network.
//
//	Source ─ one connection for each flow ─ Sink, which counts bytes in slots of time
package flow

import (
	"fmt"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// KernelPrefix begins the names of the kernel's controllers.
const KernelPrefix = "kernel:"

// HopChoice names TCP as mpbond's subflows use it: the hop chooses between CUBIC and BBR.
const HopChoice = "tcp"

// maxFlows bounds the flows that a Sink counts.
const maxFlows = 256

// SlotLength is the length of the slots in which a Sink counts.
const SlotLength = 100 * time.Millisecond

// Job describes the flows of a Source.
type Job struct {
	Flows []Flow
	// Length is how long each flow sends.
	Length time.Duration
}

// Flow is one flow of a Job.
type Flow struct {
	// Controller is one of cc.Names, kernel:NAME for the kernel's TCP with that controller, or
	// HopChoice.
	Controller string
	// To is the address of the Sink.
	To string
	// Seed is for controllers with random choices.
	Seed uint64
}

// Outcome is the result of one flow.
type Outcome struct {
	// SlotBytes is the payload received in each slot since the beginning.
	SlotBytes []unit.Bytes `json:"slot_bytes"`
	// Retransmitted counts packets sent again.
	Retransmitted int64 `json:"retransmitted_packets"`
}

// CheckController returns an error if no controller has that name. It does not check whether the
// kernel has a controller.
func CheckController(name string) error {
	if name == HopChoice || strings.HasPrefix(name, KernelPrefix) && len(name) > len(KernelPrefix) {
		return nil
	}
	if cc.New(name, 0) == nil {
		return fmt.Errorf("unknown controller %q: write %s, %s, or kernel:NAME for one of the kernel (kernel:bbr, "+
			"kernel:cubic)", name, strings.Join(cc.Names, ", "), HopChoice)
	}
	return nil
}

// ParseFlows adds flows written as CONTROLLER@ADDRESS to the job, each with its own seed.
func (j *Job) ParseFlows(seed uint64, flows []string) error {
	for i, text := range flows {
		name, addr, ok := strings.Cut(text, "@")
		if !ok || addr == "" {
			return fmt.Errorf("flow %q: write CONTROLLER@ADDRESS", text)
		}
		if err := CheckController(name); err != nil {
			return err
		}
		j.Flows = append(j.Flows, Flow{name, addr, seed + uint64(i)})
	}
	if len(j.Flows) > maxFlows || j.Length <= 0 {
		return fmt.Errorf("%d flows for %v: write at most %d flows and a length over 0", len(j.Flows), j.Length, maxFlows)
	}
	return nil
}
