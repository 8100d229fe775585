// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"
	"time"

	"mpbond/lab/radio"
)

// The first packet over a link with a sleeping radio waits until the radio is awake, the others do
// not. A start lets the radio sleep again.
func TestPromotion(t *testing.T) {
	t.Parallel()
	l := startLab(t, pairTopology+"delay=\"1ms\"\npromotion=\"300ms\"\ntail=\"10s\"", Options{})
	serveInNode(t, l, "b", true, "test-echo")
	for range 2 {
		if err := l.Start(); err != nil {
			t.Fatal(err)
		}
		disturbances := watchDisturbances(t, l)
		ping, out := startCommand(t, l, "a", "test-ping", "10.77.1.2")
		if err := ping.Wait(); err != nil {
			t.Fatal(err, out)
		}
		once, _ := disturbances()
		times := parseNumbers(t, out)
		// Without an answer in 500 ms there is no time.
		if first := time.Duration(times[0]); first < 300*time.Millisecond && (first >= 0 || once < 100*time.Millisecond) ||
			first > 400*time.Millisecond+2*once {
			t.Errorf("the first round trip: %v; delays of up to %v", first, once)
		}
		for _, ns := range times[1:] {
			if later := time.Duration(ns); later > 100*time.Millisecond+2*once {
				t.Errorf("a later one: %v; delays of up to %v", later, once)
			}
		}
	}
}

// The constants of a phone's radio are those of the energy model.
func TestSleeps(t *testing.T) {
	m, err := radio.Sets[0].Model(radio.UMTS)
	if err != nil {
		t.Fatal(err)
	}
	var l Link
	if l.SetRadio(m); l.Promotion != "582.1ms" || l.Tail != "8.9124s" || !l.Shaped() {
		t.Errorf("%+v", l)
	}
}
