// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/lab"
)

// TestLabOnload: the lab's onloading uses the real programs and the helpers that take part. Each
// file arrives complete, and the result has the times at which files were complete.
func TestLabOnload(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	if os.Geteuid() != 0 {
		t.Skip("needs root, as other tests here")
	}
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skip("nginx is not installed")
	}
	program := rig.Beside(t, rig.New(t, rig.Options{}).Mpbond, "mpbond-lab")
	for _, c := range []struct{ scheme, direction string }{{"onload:grd:helpers=1", "--get"}, {"onload", "--put"}} {
		cmd := exec.Command(program, "run", "--links", "4/4/20,4/20", "--scheme", c.scheme, c.direction, "50KB", "--items",
			"24", "--json")
		cmd.Stderr = t.Output()
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var r lab.Result // the first result, though the machine may be too busy to measure
		err = json.NewDecoder(out).Decode(&r)
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it may have been interrupted
		if err != nil {
			t.Fatal(err)
		}
		if r.Scheme != c.scheme || r.Error != "" || !r.SHA || r.Bytes != 1200*unit.KB || r.Seconds <= 0 {
			t.Fatalf("%+v", r)
		}
		if last, ok := r.ItemsDone(24); !ok || last != r.Seconds {
			t.Errorf("%s: %v of %v", c.scheme, r.Items, r.Seconds)
		}
		first, second := r.Devices["helper1"], r.Devices["helper2"]
		if first < 50*unit.KB || r.Requests["helper1"] == 0 || r.Requests["primary"] == 0 ||
			(c.scheme == "onload") != (second > 50*unit.KB) {
			t.Errorf("%s: %v, %v", c.scheme, r.Devices, r.Requests)
		}
	}
}
