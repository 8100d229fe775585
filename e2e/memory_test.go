// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/e2e/rig"
)

// peakMemory returns the peak resident memory of a process since the last call, by the kernel's
// count.
func peakMemory(t *testing.T, p *rig.Process) unit.Bytes {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", p.Cmd.Process.Pid)
	b, err := os.ReadFile(dir + "status")
	if err != nil {
		t.Fatal(err)
	}
	_ = os.WriteFile(dir+"clear_refs", []byte("5"), 0) // proc(5): resets VmHWM
	for line := range strings.Lines(string(b)) {
		var kib unit.Bytes
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// holdStreams opens n streams to a URL by a proxy and reads 1000 bytes of each. It then prints
// "held" and holds the streams until in ends.
func holdStreams(n int, proxy, target string, in io.Reader, out io.Writer) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		Proxy: http.ProxyURL(&url.URL{Scheme: "socks5h", Host: proxy})}}
	errs := make(chan error, n)
	for range n {
		go func() {
			res, err := client.Get(target)
			if err == nil {
				_, err = io.CopyN(io.Discard, res.Body, 1000)
			}
			errs <- err
		}()
	}
	var err error
	for range n {
		err = errors.Join(err, <-errs)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "held")
	_, err = io.Copy(io.Discard, in)
	return err
}

// manyStreams is the number of streams in memory measurements.
const manyStreams = 1000

// checkMemory checks the peak memory of each process against docs/explanation/memory.md. held is
// the most that buffers may hold.
func (n *network) checkMemory(t *testing.T, what string, held unit.Bytes) {
	t.Helper()
	for _, node := range []string{"server", "primary", "helper1"} {
		// The bound is 48 MB, plus twice (for the garbage collector) 32 KB a stream and what
		// buffers hold. A helper has no streams, and buffers of 4 MB each way.
		bound := 48*unit.MB + 2*(manyStreams*32*unit.KB+held)
		if node == "helper1" {
			bound = 48*unit.MB + 2*8*unit.MB
		}
		got := peakMemory(t, n.processIn(node))
		t.Logf("%s: %s held %v, the bound is %v", what, node, got, bound)
		if got > bound {
			t.Errorf("%s: %s held %v, the bound is %v", what, node, got, bound)
		}
	}
}

// holdStreams opens streams that read 1000 bytes each and then stay idle until end.
func (n *network) holdStreams(t *testing.T, target string) (end func()) {
	t.Helper()
	cmd := n.Command("primary", os.Args[0], "lab", "hold", fmt.Sprint(manyStreams), "127.0.0.1:1080", target)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatal(line, err)
	}
	return func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMemoryOfStoppedReaders: 1,000 apps each ask for 20 MB and read nothing, over unlimited links.
// Another app still gets its bytes.
func TestMemoryOfStoppedReaders(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	topology := rig.Triangle(t, "-/-/-")
	// With default buffer sizes 1,000 connections can take all memory that the kernel has for TCP.
	// Then subflows get none. All that fits into the kernel's buffers must be carried first.
	topology.Sysctl = map[string]string{"net.ipv4.tcp_rmem": "4096 65536 65536",
		"net.ipv4.tcp_wmem": "4096 65536 65536"}
	n := newNetworkWithoutRace(t, topology)
	end := n.holdStreams(t, fmt.Sprintf("http://web/zeros/%d", 20*mb))
	defer end()
	var carried int64
	grew := time.Now()
	rig.Eventually(t, func() error { // until all buffers are full: nothing more for half a second
		if now := n.primaryBondBytes(); now > carried {
			carried, grew = now, time.Now()
		}
		if time.Since(grew) < 500*time.Millisecond {
			return fmt.Errorf("still carrying: %d bytes", carried)
		}
		return nil
	})
	t.Logf("%d MB were carried, most of them into the kernel's buffers of the apps' connections", carried/mb)
	began := time.Now()
	n.Must("primary", "curl", "-sSf", "-o", "/dev/null", "--max-time", "20", "--socks5-hostname", "127.0.0.1:1080",
		fmt.Sprintf("http://web/%d", 20*mb))
	t.Logf("20 MB beside them took %v", time.Since(began).Round(time.Millisecond))
	n.checkMemory(t, "1,000 stopped readers", 64*unit.MB+manyStreams*64*unit.KB)
}

// TestMemory: with 1,000 streams, the peak memory of each process is within the bounds in
// docs/explanation/memory.md.
func TestMemory(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetworkWithoutRace(t, rig.Triangle(t, "60/60/60"))
	const streams = manyStreams
	checkMemory := func(what string, held unit.Bytes) { t.Helper(); n.checkMemory(t, what, held) }
	end := n.holdStreams(t, "http://web/idle")
	checkMemory("1,000 idle streams", 0)
	end()

	const size = 100 * unit.KB
	began := time.Now()
	n.Must("primary", os.Args[0], "lab", "streams", fmt.Sprint(streams), "127.0.0.1:1080",
		fmt.Sprintf("http://web/%d", size))
	t.Logf("took %v", time.Since(began))
	checkMemory("1,000 x 100 KB at once", min(streams*size, 64*unit.MB+streams*64*unit.KB))
}
