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

// TestSamples: real packets through an emulated cell, by real programs: PBE-CC whose
// receiver hears the cell by its samples, which cellwatch decodes, uses it
// without a queue, as BBR would not. With -long it has within 5 % the rate, and at most
// 5 % more delay, than where it is told the messages, in 5 MHz.
func TestSamples(t *testing.T) {
	requireLab(t)
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir+"/", "mpbond/cmd/mpbond-lab", "mpbond/cmd/cellwatch").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	prb, length, from, reps, sets := 15, 3*time.Second, time.Second, 1, lab.SamplesPrefix+"pbe"
	if *long {
		prb, length, from, reps, sets = 25, 12*time.Second, 2*time.Second, *repeats, "pbe,"+sets
	}
	file := filepath.Join(dir, "cell.toml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(defaultCell, "prb = 50", fmt.Sprint("prb = ", prb))+"samples = {doppler = 5, offset = 1200}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Duration(reps)*2*length)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "mpbond-lab"), "flow", file, "--over", sets, "--json", "--length", length.String(), "--phases", from.String(), "--reps", strconv.Itoa(reps))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 20*time.Second
	out, err := cmd.Output()
	got := map[string][][]float64{} // rate, p95 of the delay
	disturbed := 0
	for lines := json.NewDecoder(bytes.NewReader(out)); ; {
		var r lab.FlowResult
		if lines.Decode(&r) != nil {
			break
		}
		if r.Disturbed || r.Error != "" || len(r.Phases) < 2 {
			disturbed++
			t.Log(r.Set, r.Error, r.Lateness, r.Starved)
			continue
		}
		ph := r.Phases[1]
		got[r.Set] = append(got[r.Set], []float64{float64(ph.Rate) / 1e6, toMillis(ph.Delay.P95)})
		t.Logf("%s: %v, %.1f %%, p95 %v", r.Set, ph.Rate, 100*ph.Used, ph.Delay.P95)
		if ph.Used < 0.6 || ph.Delay.P95 > 65*time.Millisecond {
			t.Errorf("%s: %.1f %% of the cell, p95 of the delay %v", r.Set, 100*ph.Used, ph.Delay.P95)
		}
	}
	fromMessages, fromSamples := got["pbe"], got[lab.SamplesPrefix+"pbe"]
	if *long && len(fromMessages) == 0 || len(fromSamples) == 0 {
		if !*long && (disturbed > 0 || ctx.Err() != nil) {
			t.Skipf("the machine was too busy for figures: %v, %d disturbed", err, disturbed)
		}
		t.Fatalf("no figures: %v: %s", errors.Join(err, ctx.Err()), stderr.String())
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
		t.Logf("%s: %.1f, told %.1f: %.3f", what, of(fromSamples), of(fromMessages), ratio)
		if ratio < 0.95 && i == 0 || ratio > 1.05 {
			t.Errorf("%s is %.3f of what it is when messages are told", what, ratio)
		}
	}
}

func toMillis(d time.Duration) float64 { return float64(d) / 1e6 }
