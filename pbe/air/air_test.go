package air

import (
	"os"
	"testing"
)

const shared = "../../../shared/data/lte/"

// TestTogether: two carriers of one site have the same numbers.
func TestTogether(t *testing.T) {
	if _, err := os.Stat(shared); err != nil {
		t.Skip("the given recordings are not here:", err)
	}
	var first, last, n [2]int64
	err := Listen(t.Context(), []Input{
		{Source: shared + "v17_ca_pcell_10M.cf32", Rate: 15_360_000}, {Source: shared + "v18_ca_scell_5M.cf32", Rate: 7_680_000},
	}, func(s *Subframe) {
		m := s.Message(nil)
		if n[s.Cell]++; n[s.Cell] == 1 {
			first[s.Cell] = s.Number
		}
		last[s.Cell] = s.Number
		if len(m.Grants) != len(s.DCIs) || m.PRB != [...]uint8{50, 25}[s.Cell] || m.Cell != s.Cell {
			t.Errorf("%+v", m)
		}
	})
	want := [2]int64{10240 + 8000, 10240 + 8000}
	if err != nil || n != [2]int64{25, 25} || first != want || last[0] != want[0]+24 || last[1] != want[0]+24 {
		t.Error(err, n, first, last)
	}
}
