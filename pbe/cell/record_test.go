// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"testing"

	"mpbond/base/fault"
)

// record makes a recording of n random subframes of two cells.
func record(t testing.TB, n int) ([]byte, []Subframe) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	var buf bytes.Buffer
	w, err := NewWriter(&buf, [MaxCells]uint8{50, 0, 100})
	if err != nil {
		t.Fatal(err)
	}
	var list []Subframe
	for i := range n {
		s := Subframe{Cell: ID(i % 2 * 2), Number: int64(10240 + i/2), PRB: 50}
		if s.Cell == 2 {
			s.PRB = 100
		}
		grants := r.IntN(5)
		if i == 3 {
			grants = 20
		}
		for range grants {
			g := Grant{RNTI: RNTI(r.IntN(1 << 16)), Format: Format(r.IntN(int(formatCount))), PRB: uint8(r.IntN(51)),
				HARQ: uint8(r.IntN(8)), N: uint8(r.IntN(3))}
			for b := range g.N {
				g.Blocks[b] = Block{MCS: uint8(r.IntN(32)), NDI: r.IntN(2) == 0, RV: uint8(r.IntN(4)),
					Size: Bits(r.IntN(150000))}
			}
			s.Grants = append(s.Grants, g)
		}
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), list
}

// readAll reads a recording and returns copies of its subframes.
func readAll(data []byte) (list []Subframe, err error) {
	r, err := NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for {
		s, err := r.Read()
		if err == io.EOF {
			return list, nil
		} else if err != nil {
			return list, err
		}
		s.Grants = append([]Grant(nil), s.Grants...)
		list = append(list, s)
	}
}

func TestRecording(t *testing.T) {
	data, want := record(t, 200)
	got, err := readAll(data)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("read %d of %d subframes, %v", len(got), len(want), err)
	}
}

// TestRecordingIsCutOff checks that every truncation yields all earlier subframes, and either an
// end between two subframes or a clear error.
func TestRecordingIsCutOff(t *testing.T) {
	data, want := record(t, 40)
	ends := 0
	for n := range data {
		got, err := readAll(data[:n])
		if len(got) > len(want) || len(got) > 0 && !reflect.DeepEqual(got, want[:len(got)]) {
			t.Fatalf("%d bytes: other subframes than were written", n)
		}
		if err == nil {
			ends++
		} else if fault.KindOf(err) != fault.Integrity || fault.HintOf(err) == "" {
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	if ends != len(want) {
		t.Errorf("%d lengths are whole recordings, want %d", ends, len(want))
	}
}

func TestBadRecordings(t *testing.T) {
	data, _ := record(t, 3)
	change := func(at int, v byte) []byte { b := bytes.Clone(data); b[at] = v; return b }
	head := len(recordMagic) + 1 + 4
	for name, c := range map[string]struct {
		data []byte
		kind fault.Kind
	}{
		"a text":          {[]byte("GIF89a and so on"), fault.Integrity},
		"version":         {change(len(recordMagic)-1, 9), fault.Unsupported},
		"too many cells":  {change(len(recordMagic), MaxCells+1), fault.Integrity},
		"a wide cell":     {change(len(recordMagic)+2, 111), fault.Integrity},
		"a cell twice":    {change(len(recordMagic)+3, 0), fault.Integrity},
		"an unnamed cell": {change(head, 0x50), fault.Integrity},
		"many grants":     {append(bytes.Clone(data[:head]), 0x0F, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 0), fault.Integrity},
		"an endless number": {append(bytes.Clone(data[:head]), 0x00, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
			0xFF, 0xFF, 0xFF),
			fault.Other},
		"a number below 0": {append(bytes.Clone(data[:head]), 0x00, 0x03), fault.Integrity},
		"second block":     {append(bytes.Clone(data[:head]), 0x01, 0x02, 0, 1, 0, 1), fault.Integrity},
	} {
		_, err := readAll(c.data)
		if fault.KindOf(err) != c.kind {
			t.Errorf("%s: %v (%s)", name, err, fault.KindOf(err))
		}
	}
	broken := errors.New("broken disk")
	r, err := NewReader(io.MultiReader(bytes.NewReader(data[:head]), errReader{broken}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(); !errors.Is(err, broken) {
		t.Errorf("the reader's error: %v", err)
	}
	var w bytes.Buffer
	o, _ := NewWriter(&w, [MaxCells]uint8{50})
	if o.Write(Subframe{PRB: 25}) == nil || o.Write(Subframe{Cell: 1, PRB: 50}) == nil {
		t.Error("wrote a cell that the head does not name")
	}
	if _, err := NewWriter(&w, [MaxCells]uint8{200}); err == nil {
		t.Error("wrote a head with a cell that cannot be")
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

func FuzzRecording(f *testing.F) {
	data, _ := record(f, 12)
	f.Add(data)
	f.Add(append(bytes.Clone(data), recordSelf, 2, 188))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := readAll(data)
		m, fu := NewMonitor(), NewFusion(0, 1, 2)
		m.AddCell(0, self, DefaultErrorRate)
		m.AddCell(2, self, DefaultErrorRate)
		for _, s := range list {
			fu.Add(s, m.Add)
		}
		fu.Flush(m.Add)
		if e := m.Estimate(); e.Fair < 0 || e.Physical < 0 || e.Transport > e.Physical {
			t.Errorf("capacity %+v", e)
		}
		if err != nil {
			return
		}
		var prb [MaxCells]uint8
		r, _ := NewReader(bytes.NewReader(data))
		prb = r.PRB
		var buf bytes.Buffer
		w, err := NewWriter(&buf, prb)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if err := w.Write(s); err != nil {
				t.Fatal(err)
			}
		}
		w.Flush()
		again, err := readAll(buf.Bytes())
		if err != nil || len(again) != len(list) {
			t.Fatalf("written again: %d of %d, %v", len(again), len(list), err)
		}
	})
}

// TestRecordingOfSelf checks that a recording may name the device's RNTI at any time.
func TestRecordingOfSelf(t *testing.T) {
	var buf bytes.Buffer
	w, err := NewWriter(&buf, [MaxCells]uint8{50})
	if err != nil {
		t.Fatal(err)
	}
	write := func(n int64) {
		if err := w.Write(Subframe{Number: n, PRB: 50}); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	w.WriteSelf(7)
	w.WriteSelf(700)
	write(2)
	write(3)
	w.WriteSelf(0)
	write(4)
	w.Flush()
	data := buf.Bytes()
	names := func(data []byte) (list []RNTI, known []bool, err error) {
		r, err := NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := r.Read(); err == io.EOF {
				return list, known, nil
			} else if err != nil {
				return list, known, err
			}
			list, known = append(list, r.Self), append(known, r.SelfKnown)
		}
	}
	list, known, err := names(data)
	if err != nil || !reflect.DeepEqual(list, []RNTI{0, 700, 700, 0}) ||
		!reflect.DeepEqual(known, []bool{false, true, true, true}) {
		t.Errorf("%v, known: %v, %v", list, known, err)
	}
	if _, _, err := names(data[:len(data)-3]); fault.KindOf(err) != fault.Integrity {
		t.Errorf("cut off within a name: %v", err)
	}
	old := bytes.Clone(data[:len(data)-5]) // version 1 has subframes only
	old[len(recordMagic)-1] = 1
	if _, _, err := names(old); err != nil {
		t.Errorf("version 1: %v", err)
	}
}
