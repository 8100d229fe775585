// SPDX-License-Identifier: Apache-2.0

package filestore

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"mpbond/control/fleet"
)

// benchDevices is how many devices the fleet of a benchmark has. Each has used benchServers servers.
const benchDevices, benchServers = 10_000, 4

// openFull returns a store with the records of a large fleet, and the IDs of its devices.
func openFull(b *testing.B) (s *Store, devices []string) {
	b.Helper()
	dir := b.TempDir()
	s, err := Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	write := func(bucket fleet.Bucket, key string, revision, size int) { // without waiting for the disk
		data, err := json.Marshal(stored{Revision: uint64(revision), Value: make([]byte, size)})
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, string(bucket), key), data, 0o600)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for d := range benchDevices {
		id := fmt.Sprintf("device%05d", d)
		devices = append(devices, id)
		write(fleet.Devices, id, d+1, 1300)
		for n := range benchServers {
			write(fleet.UsageCounts, fmt.Sprintf("%s.eu%d", id, n+1), d*benchServers+n+1, 350)
		}
	}
	for _, bucket := range []fleet.Bucket{fleet.Devices, fleet.UsageCounts} {
		path := filepath.Join(dir, string(bucket), revisionFile)
		if err := os.WriteFile(path, []byte(fmt.Sprint(benchDevices*benchServers)), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return s, devices
}

// BenchmarkListUnder measures what a server does each second for 64 devices with a quota, after one count has changed.
func BenchmarkListUnder(b *testing.B) {
	s, devices := openFull(b)
	for b.Loop() {
		b.StopTimer()
		if _, err := s.Put(b.Context(), fleet.UsageCounts, devices[0]+".eu1", make([]byte, 350)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		list, err := s.ListUnder(b.Context(), fleet.UsageCounts, devices[:64])
		if err != nil || len(list) != 64*benchServers {
			b.Fatal(len(list), err)
		}
	}
}

// BenchmarkWatch measures what a server does after one of the records of the devices has changed, as after each beat of
// a server.
func BenchmarkWatch(b *testing.B) {
	s, devices := openFull(b)
	w := newWatch(s, fleet.Devices)
	if _, err := w.pollChanges(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		if _, err := s.Put(b.Context(), fleet.Devices, devices[0], make([]byte, 100)); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		list, err := w.pollChanges()
		if err != nil || len(list) != 1 {
			b.Fatal(len(list), err)
		}
	}
}
