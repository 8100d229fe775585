// SPDX-License-Identifier: Apache-2.0

package flow_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mpbond/lab"
)

// TestSamples sends real packets through an emulated cell. PBE-CC takes its feedback from
// cellwatch, which decodes the cell's IQ samples. PBE-CC must use the cell without the queue that
// BBR would build. With -long, in a 5 MHz cell, it must reach at least 95 % of the rate, with at
// most 105 % of the delay, that PBE-CC has when it receives the control messages directly.
func TestSamples(t *testing.T) {
	requireLab(t)
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "mpbond/cmd/mpbond-lab", "mpbond/cmd/cellwatch")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	prb, length, from, reps, sets := 15, 3*time.Second, time.Second, 1, lab.SamplesPrefix+"pbe"
	if *long {
		prb, length, from, reps, sets = 25, 12*time.Second, 2*time.Second, *repeats, "pbe,"+sets
	}
	file := filepath.Join(dir, "cell.toml")
	cell := strings.ReplaceAll(defaultCell, "prb = 50", fmt.Sprint("prb = ", prb)) +
		"samples = {doppler = 5, offset = 1200}\n"
	if err := os.WriteFile(file, []byte(cell), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(reps)*2*length)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "mpbond-lab"), "flow", file, "--over", sets, "--json",
		"--length", length.String(), "--phases", from.String(), "--reps", strconv.Itoa(reps))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 20*time.Second
	out, err := cmd.Output()
	got := map[string][][]float64{} // by set: rate in Mbit/s, p95 of the delay in ms
	var disturbed []float64         // shares of the cell that disturbed runs used
	for lines := json.NewDecoder(bytes.NewReader(out)); ; {
		var r lab.FlowResult
		if lines.Decode(&r) != nil {
			break
		}
		if r.Error != "" || len(r.Phases) < 2 || *long && r.Disturbed {
			t.Log(r.Set, r.Error, r.Lateness, r.Starved)
			continue
		}
		ph := r.Phases[1]
		if r.Disturbed { // packets and samples came late
			t.Logf("%s: used %.1f %%, disturbed: late p99 %v, max %v, starved %v", r.Set, 100*ph.Used, r.Lateness.P99,
				r.Lateness.Max, r.Starved)
			disturbed = append(disturbed, ph.Used)
			continue
		}
		got[r.Set] = append(got[r.Set], []float64{float64(ph.Rate) / 1e6, toMillis(ph.Delay.P95)})
		t.Logf("%s: %v, %.1f %%, p95 %v", r.Set, ph.Rate, 100*ph.Used, ph.Delay.P95)
		if ph.Used < 0.6 || ph.Delay.P95 > 65*time.Millisecond {
			t.Errorf("%s: used %.1f %% of the cell, want at least 60 %%; p95 of the delay %v, want at most 65 ms",
				r.Set, 100*ph.Used, ph.Delay.P95)
		}
	}
	fromMessages, fromSamples := got["pbe"], got[lab.SamplesPrefix+"pbe"]
	if len(fromSamples) == 0 && len(disturbed) > 0 { // the machine is busy
		if most := slices.Max(disturbed); most < leastUsed {
			t.Errorf("at most %.1f %% of the cell were used, want at least %.0f %%", 100*most, 100*leastUsed)
		}
		return
	}
	if *long && len(fromMessages) == 0 || len(fromSamples) == 0 {
		t.Fatalf("no results: %v: %s", errors.Join(err, ctx.Err()), stderr.String())
	}
	if !*long {
		return
	}
	for i, what := range []string{"rate", "p95 of the delay"} {
		of := func(all [][]float64) float64 {
			var v []float64
			for _, x := range all {
				v = append(v, x[i])
			}
			slices.Sort(v)
			return v[len(v)/2]
		}
		ratio := of(fromSamples) / of(fromMessages)
		t.Logf("%s: %.1f from samples, %.1f from messages: ratio %.3f", what, of(fromSamples), of(fromMessages), ratio)
		if ratio < 0.95 && i == 0 || ratio > 1.05 {
			t.Errorf("%s from samples is %.3f of that from messages", what, ratio)
		}
	}
}

func toMillis(d time.Duration) float64 { return float64(d) / 1e6 }
