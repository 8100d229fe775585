// SPDX-License-Identifier: Apache-2.0

package coupled

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
)

//go:embed bpf/coupled.c
var source []byte

//go:embed bpf/coupled.sum
var sourceSum string

// TestObjectIsOfSource checks that coupled.o was compiled from coupled.c.
func TestObjectIsOfSource(t *testing.T) {
	sum := sha256.Sum256(source)
	if got := hex.EncodeToString(sum[:]); got != strings.TrimSpace(sourceSum) {
		t.Fatalf("coupled.c has changed since coupled.o was compiled: run `make coupled`")
	}
	clang, err := exec.LookPath("clang")
	if err != nil {
		t.Skip("without clang the object is not compiled again")
	}
	again := filepath.Join(t.TempDir(), "coupled.o")
	if out, err := exec.Command(clang, "-target", "bpf", "-mcpu=v3", "-O2", "-fno-unroll-loops", "-g", "-c",
		"bpf/coupled.c", "-o", again).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b, err := os.ReadFile(again)
	if err != nil {
		t.Fatal(err)
	}
	have, want := readSpec(t, object), readSpec(t, b)
	got, wanted := slices.Sorted(maps.Keys(have.Programs)), slices.Sorted(maps.Keys(want.Programs))
	if !slices.Equal(got, wanted) {
		t.Fatalf("the object has the programs %v, the source %v", got, wanted)
	}
	for name, p := range want.Programs { // other releases of clang generate other code
		if got := have.Programs[name]; got.AttachTo != p.AttachTo || len(got.Instructions) < len(p.Instructions)/2 {
			t.Errorf("%s: %s and %d instructions, of the source %s and %d", name, got.AttachTo, len(got.Instructions),
				p.AttachTo, len(p.Instructions))
		}
	}
}

func readSpec(t *testing.T, object []byte) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// step is the argument of the program that computes the formulas in the kernel.
type step struct {
	Slots                  [MaxPaths]slot
	Increase               int64
	Algorithm, Own, Window uint32
	_                      uint32
}

// slot is a subflow in the map that the programs share.
type slot struct {
	SK              uint64
	Path            Path
	LossAt, Between uint64
	Credit          int64
}

// TestFormulasInKernel compares what the programs compute in the kernel with the formulas in Go.
func TestFormulasInKernel(t *testing.T) {
	needKernel(t)
	collection, err := loadObject()
	if err != nil {
		t.Fatal(err)
	}
	defer collection.Close()
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		s := step{Algorithm: uint32(r.IntN(int(algorithms))), Own: uint32(r.IntN(MaxPaths))}
		paths := drawPaths(r)
		for i, p := range paths {
			s.Slots[i].Path = p
		}
		if err := collection.Maps["steps"].Put(uint32(0), &s); err != nil {
			t.Fatal(err)
		}
		if code, err := collection.Programs["formulas"].Run(&ebpf.RunOptions{}); err != nil || code != 0 {
			t.Fatal(code, err)
		}
		var got step
		if err := collection.Maps["steps"].Lookup(uint32(0), &got); err != nil {
			t.Fatal(err)
		}
		a := Algorithm(s.Algorithm)
		if want := a.Increase(paths, int(s.Own)); got.Increase != want {
			t.Fatalf("%v: increase %d in the kernel, %d in Go\n%+v, own %d", a, got.Increase, want, paths, s.Own)
		}
		if want := a.AfterLoss(paths, int(s.Own)); got.Window != want {
			t.Fatalf("%v: window after a loss %d in the kernel, %d in Go\n%+v, own %d", a, got.Window, want, paths, s.Own)
		}
	}
}

// TestRegister checks that the kernel knows the algorithms while they are registered.
func TestRegister(t *testing.T) {
	needKernel(t)
	known := func() []string {
		b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(b))
	}
	k, err := Register()
	if err != nil {
		t.Fatal(err)
	}
	for a := range algorithms {
		if !slices.Contains(known(), CongestionName(a)) {
			t.Errorf("the kernel does not know %s: %v", CongestionName(a), known())
		}
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	for a := range algorithms {
		if slices.Contains(known(), CongestionName(a)) {
			t.Errorf("the kernel still knows %s", CongestionName(a))
		}
	}
}

// needKernel skips a test where programs cannot be loaded.
func needKernel(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip("needs a kernel with BTF")
	}
	var major, minor int
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if _, err2 := fmt.Sscanf(string(release), "%d.%d", &major, &minor); err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	if major < 6 || major == 6 && minor < 4 {
		t.Skip("needs Linux 6.4 or newer")
	}
}
