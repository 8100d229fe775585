// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/link/congestion"
	"mpbond/link/estimate"
	"mpbond/link/tcpinfo"
)

// Probe reads the state of the sending direction from the kernel (TCP_INFO and SIOCOUTQ; together
// under 1 µs). Acked counts bytes of data, without SYN and FIN.
func (c *Conn) Probe() (h estimate.Hop, err error) {
	err = controlRawConn(c.raw, func(fd int) error {
		c.gapMu.Lock()
		defer c.gapMu.Unlock()
		if h, err = readHopSample(fd, c.ipv6, &c.gap); err == nil {
			c.boundRetransmitTimeout(fd, h.SRTT)
		}
		return err
	})
	h.Acked = min(h.Acked-min(h.Acked, c.ackedBefore), c.written.Load())
	h.PacingLimit = unit.Rate(c.pace.Load())
	return h, err
}

// readAckedBytes returns the kernel's count of acknowledged bytes, which includes the SYN.
func readAckedBytes(raw syscall.RawConn) (n uint64) {
	_ = controlRawConn(raw, func(fd int) error {
		h, err := readHopSample(fd, false, &receiveGap{})
		n = h.Acked
		return err
	})
	return n
}

// readHopSample reads a sample of a socket's hop from the kernel, and updates gap.
func readHopSample(fd int, ipv6 bool, gap *receiveGap) (h estimate.Hop, err error) {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return h, fmt.Errorf("TCP_INFO: %w", err)
	}
	queue, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return h, fmt.Errorf("SIOCOUTQ: %w", err)
	}
	h = convertTCPInfo(i, queue).Hop()
	if i.Bytes_sent > 0 { // since Linux 4.19
		headers, ack := uint64(dataHeaders), uint64(ackPacketSize)
		if ipv6 {
			headers, ack = headers+ipv6ExtraHeader, ack+ipv6ExtraHeader
		}
		h.WireOut = i.Bytes_sent + uint64(i.Data_segs_out)*headers + uint64(i.Segs_out-i.Data_segs_out)*ack
		behind := gap.updateGap(time.Now(), receivedCounts{i.Data_segs_in, i.Rcv_ooopack, i.Bytes_received},
			unit.Bytes(i.Rcv_mss))
		h.WireIn = i.Bytes_received + uint64(behind) + uint64(i.Data_segs_in)*headers +
			uint64(i.Segs_in-i.Data_segs_in)*ack
	}
	return h, nil
}

// convertTCPInfo returns the fields of TCP_INFO that samples are made of. Notsent_bytes exists
// since Linux 4.6.
func convertTCPInfo(i *unix.TCPInfo, queue int) *tcpinfo.Info {
	return &tcpinfo.Info{RTT: i.Rtt, RTTVar: i.Rttvar, MinRTT: i.Min_rtt, DeliveryRate: i.Delivery_rate,
		DeliveryRateAppLimited: appLimited(i), CongestionWindow: i.Snd_cwnd, SlowStartThreshold: i.Snd_ssthresh,
		MSS: i.Snd_mss, Sacked: i.Sacked, InFlight: packetsInFlight(i), Unsent: i.Notsent_bytes, Queue: uint32(max(queue, 0)),
		BytesAcked: i.Bytes_acked, BytesReceived: i.Bytes_received, PathMTU: i.Pmtu, Packets: i.Data_segs_out,
		Retransmission: i.Total_retrans}
}

// packetsInFlight is tcp_packets_in_flight of the kernel (net/tcp.h). A segmentation that changes the
// counts may make it seem negative.
func packetsInFlight(i *unix.TCPInfo) uint32 {
	return uint32(max(int64(i.Unacked)-int64(i.Sacked)-int64(i.Lost)+int64(i.Retrans), 0))
}

// CarriedSupported reports whether Carried works on this system.
const CarriedSupported = true

// Carried returns how many bytes the network has carried for the connection in each direction: IP
// packets with IP and TCP headers, including retransmissions. pending is the same for data that the
// kernel holds and has not sent yet.
//
// Packets dropped by this device's own queue after TCP sent them are included: with fq_codel behind
// a shaper, out is up to 6 % above the interface's counter. The kernel does not report received
// duplicates, nor the options of acknowledgements during losses; these are estimated.
func (c *Conn) Carried() (in, out, pending unit.Bytes, err error) {
	err = controlRawConn(c.raw, func(fd int) error {
		i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return fmt.Errorf("TCP_INFO: %w", err)
		}
		refused := refusedBytes(i)
		if i.State != tcpClose {
			c.unsentBytes.Store(uint64(refused))
		} else { // the kernel has forgotten what was in flight
			refused = unit.Bytes(c.unsentBytes.Load())
		}
		in, out, pending = carriedBytes(i, refused, c.ipv6)
		return nil
	})
	if c.discarded.Load() {
		pending = 0
	}
	return in, out, pending, err
}

// Sizes of headers and options (RFC 791, RFC 8200, RFC 9293, RFC 7323, RFC 2018).
const (
	ipv4Header, tcpHeader = 20, 20
	timestampOption       = 12
	sackOption            = 12 // 2 bytes of padding, 2 of header, 8 for one range; 8 for each further range
	synOptions            = 8  // MSS and window scale, in addition to those of every packet
)

// tcpClose is the state of a closed connection (net/tcp_states.h).
const tcpClose = 7

// refusedBytes returns how many bytes TCP counts as sent although they never left: the interface's
// own queue (such as a shaper) refused them. TCP offers them again and counts each attempt. Bytes
// that left have arrived, are in flight or were retransmitted.
func refusedBytes(i *unix.TCPInfo) unit.Bytes {
	left := i.Bytes_acked + uint64(i.Unacked)*uint64(i.Snd_mss) + i.Bytes_retrans
	return unit.Bytes(i.Bytes_sent - min(i.Bytes_sent, left))
}

// carriedBytes estimates what the network carried for a connection, as Carried returns it. refused
// bytes never left.
func carriedBytes(i *unix.TCPInfo, refused unit.Bytes, ipv6 bool) (in, out, pending unit.Bytes) {
	header := unit.Bytes(ipv4Header + tcpHeader)
	if ipv6 {
		header += ipv6ExtraHeader
	}
	if i.Options&1 != 0 { // TCPI_OPT_TIMESTAMPS
		header += timestampOption
	}
	segments := unit.Bytes(i.Segs_out)
	if mss := unit.Bytes(i.Snd_mss); mss > 0 {
		segments -= min(segments, refused/mss)
	}
	out = sentDataBytes(i) - min(sentDataBytes(i), refused) + segments*header + unit.Bytes(i.Rcv_ooopack)*sackOption +
		synOptions
	in = unit.Bytes(i.Bytes_received) + unit.Bytes(i.Segs_in)*header + synOptions
	if mss := unit.Bytes(i.Snd_mss); mss > 0 {
		pending = unit.Bytes(i.Notsent_bytes) + (unit.Bytes(i.Notsent_bytes)+mss-1)/mss*header
	}
	return in, out, pending
}

// sentDataBytes returns how many bytes of data were sent, including retransmissions. Before Linux
// 4.19 it is estimated from full-sized packets. The kernel's count of acknowledged bytes includes
// one byte each for SYN and FIN.
func sentDataBytes(i *unix.TCPInfo) unit.Bytes {
	if i.Bytes_sent > 0 || i.Bytes_acked <= 2 {
		return unit.Bytes(i.Bytes_sent)
	}
	return unit.Bytes(i.Bytes_acked) + unit.Bytes(i.Total_retrans+i.Unacked)*unit.Bytes(i.Snd_mss)
}

// Estimated sizes of a TCP packet without its data, and of an acknowledgement. IPv4 and TCP headers
// with timestamps are 52 bytes. Interfaces may also count Ethernet headers. An acknowledgement has
// up to 28 bytes more during losses (RFC 2018). The error is at most 1 % of the data.
const dataHeaders, ackPacketSize = 66, 80

// ipv6ExtraHeader is how much longer IPv6's header is than IPv4's.
const ipv6ExtraHeader = 20

// appLimited reads tcpi_delivery_rate_app_limited: the first bit of the eighth byte of struct
// tcp_info (linux/tcp.h). In golang.org/x/sys it lies in the padding after Options, because C does
// not define the layout of bit fields.
func appLimited(i *unix.TCPInfo) bool {
	const offset = unsafe.Offsetof(i.Options) + 2
	b := (*[offset + 1]byte)(unsafe.Pointer(i))[offset]
	if bigEndian {
		return b&0x80 != 0
	}
	return b&1 != 0
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// isPollWritable reports whether the kernel would signal POLLOUT. POLLOUT depends on the unsent
// bytes, whereas write depends on the send buffer. If the answer is no, the call also arms the edge
// that wakes the runtime's poller.
func isPollWritable(fd int) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		n, err := unix.Ppoll(p[:], &unix.Timespec{}, nil)
		if err != unix.EINTR {
			return n != 0 || err != nil
		}
	}
}

func setNotSentLowat(fd, n int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n)
}

// setWindowClamp sets TCP_WINDOW_CLAMP. TCP never shrinks a window that it has announced (RFC 9293
// section 3.8.6), and raises the clamp again when it gives the connection more memory.
func setWindowClamp(fd, n int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, n)
}

// setMaxPacingRate sets SO_MAX_PACING_RATE. TCP paces by itself where there is no fq qdisc (since
// Linux 4.13).
func setMaxPacingRate(fd int, r unit.Rate) error {
	v := uint64(math.MaxUint64)
	if r > 0 {
		v = uint64(max(r/8, 1))
	}
	return unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, v)
}

func setUserTimeout(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}

// boundRetransmitTimeout sets TCP_RTO_MAX_MS, if the connection has RetransmitOften, for a smoothed
// round trip. Kernels before 6.15 do not have it, and keep their 2 minutes.
func (c *Conn) boundRetransmitTimeout(fd int, srtt time.Duration) {
	if !c.retransmitOften {
		return
	}
	bound := min(max(retransmitRoundTrips*srtt, retransmitBound), maxRetransmitBound)
	if now := time.Duration(c.retransmitBound.Load()); bound > now || bound < now/2 {
		c.retransmitBound.Store(int64(bound))
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, int(bound.Milliseconds()))
	}
}

const congestionList = "/proc/sys/net/ipv4/tcp_available_congestion_control"

// setCongestionName sets a socket's congestion control.
func setCongestionName(fd int, name string) error {
	err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.EPERM) {
		return fault.New(fault.Permission, fmt.Errorf("congestion control %q: %w", name, err),
			"only root may use it, unless the sysctl net.ipv4.tcp_allowed_congestion_control lists it")
	}
	have := "see " + congestionList
	if b, e := os.ReadFile(congestionList); e == nil {
		have = "this kernel has: " + strings.TrimSpace(string(b))
	}
	return fault.New(fault.Config, fmt.Errorf("congestion control %q: %w", name, err), have)
}

// checkCongestion checks the name of a congestion control of the system.
func checkCongestion(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("congestion control %q: %w", name, err)
	}
	defer unix.Close(fd) //nolint:errcheck // never connected
	return setCongestionName(fd, name)
}

func readCongestionName(fd int) (string, error) {
	return unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
}

// readCongestionSample reads a sample without its time. A packet that was sent again although it
// had arrived (RFC 2883) was not lost.
func readCongestionSample(fd int) (s congestion.Sample, err error) {
	i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil || i.Min_rtt == math.MaxUint32 {
		return s, err
	}
	return congestion.Sample{
		Sent:     uint64(i.Data_segs_out),
		Lost:     uint64(i.Total_retrans - min(i.Total_retrans, i.Dsack_dups)),
		SRTT:     time.Duration(i.Rtt) * time.Microsecond,
		MinRTT:   time.Duration(i.Min_rtt) * time.Microsecond,
		InFlight: int(i.Unacked),
		Window:   int(i.Snd_cwnd),
		// As tcp_in_slow_start of the kernel.
		SlowStart: i.Snd_cwnd < i.Snd_ssthresh,
	}, nil
}

func setMaxSegment(fd, n int) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, n)
}

// bindAndMarkSocket binds a socket to an interface unless device is empty, and marks its packets
// unless mark is 0.
func bindAndMarkSocket(fd int, device string, mark int) error {
	if device != "" {
		if err := unix.BindToDevice(fd, device); err != nil {
			return fmt.Errorf("interface %q: %w", device, err)
		}
	}
	if mark != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark); err != nil {
			err = fmt.Errorf("packets cannot be marked: %w", err)
			if errors.Is(err, unix.EPERM) {
				return fault.New(fault.Permission, err, "run it as root (CAP_NET_ADMIN)")
			}
			return err
		}
	}
	return nil
}
