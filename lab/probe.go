// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ports of the calibration's programs.
const (
	probeTCP    = 97 // sends zeros to each connection
	probeUDP    = 96 // records arrivals of datagrams
	probeReport = 95 // reports arrivals
)

// probeSize is the UDP payload of a datagram of 1500 IP bytes.
const probeSize = 1472

// probeWarmup lets TCP find the rate and fill the queues.
const probeWarmup = 2 * time.Second

// RunProbe is the program that calibration runs in its nodes: "source" answers, "measure" loads the
// links and prints a probeResult. Transfers use it too: "echo" answers pings, "ping" sends them.
func RunProbe(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "source":
		return serveProbes()
	case len(args) == 1 && args[0] == "echo":
		return echoPings()
	case len(args) == 2 && args[0] == "ping":
		var job pingJob
		if err := json.Unmarshal([]byte(args[1]), &job); err != nil {
			return err
		}
		return job.pingUntilEOF(os.Stdin, os.Stdout)
	case len(args) == 2 && args[0] == "measure":
		var job probeJob
		if err := json.Unmarshal([]byte(args[1]), &job); err != nil {
			return err
		}
		res, err := job.measureLinks()
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(res)
	}
	return fmt.Errorf("probe: want source, measure JOB, echo or ping JOB")
}

// probeJob describes what to measure.
type probeJob struct {
	Loaded  []string      // addresses of TCP streams, one for each loaded link
	Probe   string        // address for datagrams, over a link without other load
	Gap     time.Duration // between datagrams
	Length  time.Duration // of the measurement after the warm-up
	PerByte float64       // ns that a byte takes on the probe link
	Delay   time.Duration // of the probe link
}

// probeResult is the result of a probeJob.
type probeResult struct {
	Rates []float64       // bit/s of IP bytes that arrived, for each loaded link
	Added []time.Duration // one-way delay above the ideal, of each datagram
	Lost  int
}

// measureLinks loads the links and sends probes meanwhile.
func (j probeJob) measureLinks() (res probeResult, err error) {
	res.Rates = make([]float64, len(j.Loaded))
	errs := make(chan error, len(j.Loaded))
	var wg sync.WaitGroup
	for i, addr := range j.Loaded {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var err error
			if res.Rates[i], err = measureStream(addr, j.Length); err != nil {
				errs <- err
			}
		}()
	}
	time.Sleep(probeWarmup)
	sent, err := j.sendProbes()
	wg.Wait()
	if err != nil {
		return res, err
	}
	select {
	case err := <-errs:
		return res, err
	default:
	}
	return res, j.compareArrivals(sent, &res)
}

// measureStream measures the rate of arriving data segments, including retransmitted and reordered
// ones, since the link's rate counts and not TCP's.
func measureStream(addr string, length time.Duration) (rate float64, err error) {
	c, err := dialHostPort("tcp4", addr, probeTCP)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	segments := func() (n uint32, at time.Time) {
		_ = raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				n, at = info.Data_segs_in, time.Now()
			}
		})
		return n, at
	}
	buf := make([]byte, 1<<18)
	var first uint32
	var from time.Time
	for start := time.Now(); ; {
		if _, err := c.Read(buf); err != nil {
			return 0, err
		}
		t := time.Since(start)
		if from.IsZero() && t >= probeWarmup {
			first, from = segments()
		}
		if t >= probeWarmup+length {
			n, at := segments()
			return float64(n-first) * packetIP * 8 / at.Sub(from).Seconds(), nil
		}
	}
}

// sendProbes sends numbered datagrams and returns when each was sent.
func (j probeJob) sendProbes() (sent []int64, err error) {
	c, err := dialHostPort("udp4", j.Probe, probeUDP)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	msg := make([]byte, probeSize)
	for start := time.Now(); time.Since(start) < j.Length; time.Sleep(j.Gap) {
		binary.BigEndian.PutUint64(msg, uint64(len(sent)))
		sent = append(sent, time.Now().UnixNano())
		if _, err := c.Write(msg); err != nil {
			return nil, err
		}
	}
	return sent, nil
}

// arrival is one datagram as the source recorded it.
type arrival struct{ Seq, At int64 }

// compareArrivals fetches the arrivals and compares them with those of an ideal link.
func (j probeJob) compareArrivals(sent []int64, res *probeResult) error {
	time.Sleep(j.Delay + 200*time.Millisecond) // let the last one arrive
	c, err := dialHostPort("tcp4", j.Probe, probeReport)
	if err != nil {
		return err
	}
	defer c.Close()
	var came []arrival
	if err := json.NewDecoder(c).Decode(&came); err != nil {
		return err
	}
	at := map[int64]int64{}
	for _, a := range came {
		at[a.Seq] = a.At
	}
	free := int64(0) // when the ideal link has sent all earlier ones
	for i, t := range sent {
		free = max(free, t) + int64(j.PerByte*packetIP)
		if got, ok := at[int64(i)]; ok {
			res.Added = append(res.Added, time.Duration(got-free)-j.Delay)
		} else {
			res.Lost++
		}
	}
	return nil
}

// serveProbes serves the other end until it is killed.
func serveProbes() error {
	tcp, err := net.Listen("tcp4", fmt.Sprintf(":%d", probeTCP))
	if err != nil {
		return err
	}
	go serveConns(tcp, func(c net.Conn) {
		buf := make([]byte, 1<<18)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
	report, err := net.Listen("tcp4", fmt.Sprintf(":%d", probeReport))
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var came []arrival
	go serveConns(report, func(c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(c).Encode(came)
	})
	return recordArrivals(func(a arrival) {
		mu.Lock()
		defer mu.Unlock()
		came = append(came, a)
	})
}

// serveConns calls f for each connection.
func serveConns(l net.Listener, f func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			f(c)
		}()
	}
}

// recordArrivals receives datagrams with the kernel's time stamps, made when the emulator hands the
// packet over. So a late wake-up of this program does not count.
func recordArrivals(note func(arrival)) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: probeUDP}); err != nil {
		return err
	}
	buf, control := make([]byte, 2048), make([]byte, 256)
	for {
		n, cn, _, _, err := unix.Recvmsg(fd, buf, control, 0)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		msgs, err := unix.ParseSocketControlMessage(control[:cn])
		if err != nil || n < 8 {
			continue
		}
		for _, m := range msgs {
			if m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
				ts := *(*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
				note(arrival{int64(binary.BigEndian.Uint64(buf)), ts.Nano()})
			}
		}
	}
}

func dialHostPort(network, addr string, port int) (net.Conn, error) {
	return net.Dial(network, net.JoinHostPort(addr, strconv.Itoa(port)))
}
