// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOldRecord: a record with the names of earlier versions is read.
func TestOldRecord(t *testing.T) {
	dir := t.TempDir()
	text := `{"run":{"commit":"abc","seed":3,"quick":true,"planned":2}}
{"cell":"c","result":{"scheme":"kibbutz:ratio=0.5","seconds":2}}
{"cell":"c","result":{"scheme":"mpbond","seconds":1,"path_end_spread_seconds":0.25,"resent_bytes":{"eta":7}}}
`
	quick := QuickDir(dir)
	if err := os.Mkdir(quick, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(quick, "x.jsonl"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	rec, err := LoadRecord(quick, "x", true)
	if err != nil || len(rec.Results["c"]) != 2 {
		t.Fatalf("%+v, %v", rec, err)
	}
	if r := rec.Results["c"][0]; r.Scheme != mptcp+":ratio=0.5" {
		t.Errorf("scheme %s", r.Scheme)
	}
	if r := rec.Results["c"][1]; r.EndSpread != 0.25 || r.Reinjected["eta"] != 7 {
		t.Errorf("%+v", r)
	}
	if c := rec.rerunCommand(); !strings.HasSuffix(c, "run x --seed 3 --quick --dir "+dir) {
		t.Errorf("rerun command %q", c)
	}
}
