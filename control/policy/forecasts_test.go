// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// TestForecasts checks that the latest forecasts are kept, the newest first, and their median
// error.
func TestForecasts(t *testing.T) {
	var f Forecasts
	if _, ok := f.MedianError(); ok || len(f.ListForecasts()) > 0 {
		t.Error("there is an error of no forecasts")
	}
	for i := range 3 * maxForecasts / 2 {
		took := time.Second
		if i%2 == 0 {
			took = 2 * time.Second // an error of a half
		}
		f.AddForecast(Forecast{Bytes: unit.Bytes(i), Expected: time.Second, Took: took})
	}
	list := f.ListForecasts()
	if len(list) != maxForecasts || list[0].Bytes != 3*maxForecasts/2-1 || list[maxForecasts-1].Bytes != maxForecasts/2 {
		t.Errorf("%d forecasts from %d to %d", len(list), list[0].Bytes, list[len(list)-1].Bytes)
	}
	if e, ok := f.MedianError(); !ok || e != .5 {
		t.Errorf("median error %g", e)
	}
	if e := (Forecast{Expected: 5 * time.Millisecond}).RelativeError(); e != .5 {
		t.Errorf("a transfer of no time has the error %g", e)
	}
}

// TestTransferTime checks times from the first byte to the last one.
func TestTransferTime(t *testing.T) {
	list := []Subflow{newOwnSubflow(8*unit.Mbps, wire.RadioNone), newOwnSubflow(8*unit.Mbps, wire.RadioNone)}
	if got := TransferTime(list, unit.MB); got != 0 {
		t.Errorf("over no subflow %v", got)
	}
	list[0].Allowed = true
	if got := TransferTime(list, 1_000_000).Round(time.Millisecond); got != time.Second {
		t.Errorf("1 MB at 8 Mbit/s take %v", got)
	}
	list[1].Allowed = true
	if got := TransferTime(list, unit.MB); got >= 600*time.Millisecond {
		t.Errorf("over two they take %v", got)
	}
}
