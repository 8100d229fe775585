// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"runtime"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/link/pairing"
)

// BenchmarkApplyDevice measures what a server needs to learn of each device of its fleet: time, and memory that stays.
func BenchmarkApplyDevice(b *testing.B) {
	operator, err := identity.Generate()
	if err != nil {
		b.Fatal(err)
	}
	records := make([]Change, 1000)
	now := time.Now().UTC()
	for i := range records {
		records[i] = newDeviceChange(b, operator, now)
	}
	var kept uint64
	var directories []*directory
	for b.Loop() {
		before := heapInUse()
		d, _, err := openDirectory("", time.Hour, time.Now)
		if err == nil {
			err = d.pinKey(operator.Public())
		}
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range records {
			if _, err := d.applyDevice(c); err != nil {
				b.Fatal(err)
			}
		}
		directories = append(directories, d)
		kept += heapInUse() - before
	}
	devices := float64(len(directories) * len(records))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/devices, "ns/device")
	b.ReportMetric(float64(kept)/devices, "B/device")
	runtime.KeepAlive(directories)
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// newDeviceChange returns the record of a new device.
func newDeviceChange(b *testing.B, operator *identity.Key, now time.Time) Change {
	b.Helper()
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	key, err := identity.Generate()
	must(err)
	code := pairing.NewFleetCode(operator.Public(), []string{"eu1.example.org:7600"})
	public, err := code.ClaimKey()
	must(err)
	signed, err := sign(operator, Invitation{Code: code.ID(), Claim: public, Issued: now, Expires: now.Add(time.Hour)})
	must(err)
	claim, err := code.SignClaim(key.Public())
	must(err)
	r := deviceRecord{Invitation: signed, Key: key.Public(), Name: "phone", Claim: claim[:], Enrolled: now, Server: "eu1"}
	return Change{Record: Record{Key: key.Public().String(), Value: encode(r)}}
}
