// Package flow runs bulk flows between two programs: over pbe/transport with any of our
// congestion controllers, and over the kernel's TCP with any of its own, so that
// both can be compared on the same links. Before it stands the lab, which runs the
// two programs in nodes of an emulated network; behind it pbe/transport or the kernel.
//
//	Source ─ one connection for each flow ─ Sink, which counts what arrives in slots of time
package flow

import (
	"fmt"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// KernelPrefix is what names of the kernel's controllers begin with.
const KernelPrefix = "kernel:"

// maxFlows bounds what a Sink remembers.
const maxFlows = 256

// SlotLength is the length of the slots in which a Sink counts.
const SlotLength = 100 * time.Millisecond

// Job is what a Source is to do.
type Job struct {
	Flows []Flow
	// Length is how long each flow sends.
	Length time.Duration
}

// Flow is one flow of a Job.
type Flow struct {
	// Controller is a name of cc.Names, or kernel:NAME for the kernel's TCP with its
	// controller of that name.
	Controller string
	// To is the address of the Sink.
	To string
	// Seed is of what the controller draws.
	Seed uint64
}

// Outcome is what came of one flow.
type Outcome struct {
	// SlotBytes is the payload that was read in each slot since the beginning.
	SlotBytes []unit.Bytes
	// Resent counts packets that the sender sent again.
	Resent int64
}

// CheckController says what is wrong with a controller's name, if anything. Whether the
// kernel has one is only known when it is used.
func CheckController(name string) error {
	if strings.HasPrefix(name, KernelPrefix) && len(name) > len(KernelPrefix) {
		return nil
	}
	if cc.New(name, 0) == nil {
		return fmt.Errorf("no controller %q: write %s, or kernel:NAME for one of the kernel's (kernel:bbr, kernel:cubic)", name, strings.Join(cc.Names, ", "))
	}
	return nil
}

// ParseFlows puts flows that are written as CONTROLLER@ADDRESS into the job, each with a
// seed of its own.
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
		return fmt.Errorf("%d flows for %v: at most %d, for some time", len(j.Flows), j.Length, maxFlows)
	}
	return nil
}
