// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"mpbond/base/unit"
)

// frames holds one example of every frame and its parser.
var frames = []struct {
	f     Frame
	parse func([]byte) (any, error)
}{
	{Join{Version: Version, Bond: BondID{1, 2, 15: 9}, Subflow: 1 << 31, Instance: 1 << 63, Helped: true, Key: key,
		Terms: Terms{RadioCellular, true, TierBackup, 5e6, 70 * time.Millisecond}, Device: "phone"}, wrap(ParseJoin)},
	{Join{Version: Version, Subflow: 1, Device: "laptop"}, wrap(ParseJoin)},
	{InitOK{Radio: RadioBluetooth}, wrap(ParseInitOK)},
	{Expect{Stream: 300, At: 1000, End: 512_000, NeededIn: 1700 * time.Millisecond}, wrap(ParseExpect)},
	{Hint{Subflow: 300, Serial: 1 << 40, Probability: 0.4, ValidFor: 2 * time.Second, HandedOff: true},
		wrap(ParseHint)},
	{Choice{Stream: 300, Subflows: []SubflowID{1, 300}, Reason: "why not"}, wrap(ParseChoice)},
	{Train{Left: 9, Padding: 1300}, wrap(ParseTrain)},
	{Rate{Subflow: 300, Rate: 5e6, RTT: 70 * time.Millisecond}, wrap(ParseRate)},
	{OK{Instance: 77}, wrap(ParseOK)},
	{Refuse{Code: CodeUnknown, Version: 1, Text: "who?"}, wrap(ParseRefuse)},
	{Open{Stream: 300, Mode: ModeRedundant, Group: 900, Dest: "example.org:443"}, wrap(ParseOpen)},
	{ClassTable{Serial: 300, Groups: []Group{{ID: 1, Weight: 1}, {ID: 3, Priority: Low, Weight: 255, Limited: true},
		{ID: 70000, Priority: High, Weight: 2, Limited: true, Subflows: []SubflowID{1, 300}}}}, wrap(ParseClassTable)},
	{ClassUpdate{Stream: 300, Serial: 1 << 40, Mode: ModeLatency, Group: 1 << 31}, wrap(ParseClassUpdate)},
	{Chunk{Stream: 300, End: 1 << 40}, wrap(ParseChunk)},
	{Opened{Stream: 300}, wrap(ParseOpened)},
	{Data{Stream: 1, Seq: MaxSeq, Bytes: []byte("hello")}, wrap(ParseData)},
	{Fin{Stream: 1, Seq: 1 << 40}, wrap(ParseFin)},
	{Reset{Stream: 1, Code: CodeConnRefused, Text: "no"}, wrap(ParseReset)},
	{Window{Stream: 9, Limit: 1 << 20}, wrap(ParseWindow)},
	{Datagram{Flow: 7, Number: 1 << 40, Redundant: true, Group: 200,
		Addr: Addr{IP: netip.MustParseAddr("192.0.2.1"), Port: 53}, Bytes: []byte("?")}, wrap(ParseDatagram)},
	{Datagram{Flow: 7, Addr: Addr{IP: netip.MustParseAddr("2001:db8::1"), Port: 443}, Bytes: []byte{}},
		wrap(ParseDatagram)},
	{Datagram{Flow: 1, Addr: Addr{Name: "example.org", Port: 65535}, Bytes: []byte("hello")}, wrap(ParseDatagram)},
	{FlowEnd{Flow: 3, Code: CodeClosed, Text: "unused"}, wrap(ParseFlowEnd)},
	{FlowRefused{Flow: 3, Code: CodeForbidden, Addr: Addr{Name: "x", Port: 1}, Text: "no"}, wrap(ParseFlowRefused)},
	{FlowRefused{Flow: 3, Code: CodeTooBig, MTU: 1400, Addr: Addr{Name: "x", Port: 1}}, wrap(ParseFlowRefused)},
	{Ack{Delay: 1500 * time.Microsecond, Subflows: []SubflowAck{{1, 100}, {2, 1 << 40}}},
		wrap(func(b []byte) (Ack, error) { return ParseAck(b, nil) })},
	{PipeState{Subflow: 3, HopState: state}, wrap(ParsePipeState)},
	{Hello{Version: Version, Name: "phone"}, wrap(ParseHello)},
	{InitJoin{Token: token, Key: key, ResumeTimeout: 10 * time.Second, Server: "[2001:db8::1]:7600"},
		wrap(ParseInitJoin)},
	{Resume{Token: token, Attempt: 300, Received: 1 << 40}, wrap(ParseResume)},
	{Resumed{Received: 1 << 63, From: 300}, wrap(ParseResumed)},
	{Received{Count: 1 << 33}, wrap(ParseReceived)},
	{Stalled{Token: token}, wrap(ParseStalled)},
	{state, wrap(ParseHopState)},
	{HopState{Received: 9, Forwarded: 8, AboutPipe: true}, wrap(ParseHopState)},
	{HopState{Received: 9, Forwarded: 8, AboutPipe: true, ForPrimary: true}, wrap(ParseHopState)},
	{HopLimit{Rate: MinHopLimit}, wrap(ParseHopLimit)},
	{HopLimit{}, wrap(ParseHopLimit)},
	{HopAuth{Counter: 1 << 63, Of: TypeHopState, Payload: longState.AppendPayload(nil), Tag: [HopTagLen]byte{1, 15: 2}},
		wrap(ParseHopAuth)},
	{HopAuth{Counter: 1, Of: TypeHopLimit, Payload: HopLimit{}.AppendPayload(nil)}, wrap(ParseHopAuth)},
	{Facts{Battery: unit.Percent(80), Power: PowerBattery, Temperature: unit.Celsius(31.5), Link: "wwan0",
		Radio: RadioCellular, Metered: MeteredYes,
		Signal: unit.Percent(0), RefusalReason: "its battery is low"}, wrap(ParseFacts)},
	{Facts{}, wrap(ParseFacts)},
	{Trouble{Code: CodeConnRefused, Address: "vps.example.org:7600", Text: "connection refused"}, wrap(ParseTrouble)},
	{Trouble{}, wrap(ParseTrouble)},
	{Report{To: [32]byte{1, 31: 2}, From: [32]byte{3}, Unix: 1 << 31, Code: CodeTimeout, Address: "192.168.1.5:7602",
		Sig: [64]byte{9, 63: 8}}, wrap(ParseReport)},
	{Pair{Version: Version}, wrap(ParsePair)},
	{PairStep{Number: 3, Bytes: []byte("mac")}, wrap(ParsePairStep)},
	{PairIdentity{Roles: PairHelper, Name: "phone"}, wrap(ParsePairIdentity)},
	{PairIdentity{Roles: PairPrimary | PairHelper, Port: 7602, Name: "laptop",
		Servers: []string{"vps.example.org:7600", "[2001:db8::1]:7600"}}, wrap(ParsePairIdentity)},
	{PairDone{}, wrap(ParsePairDone)},
	{PairCode{ID: [12]byte{1, 11: 9}}, wrap(ParsePairCode)},
	{PairFleet{Key: [32]byte{1, 31: 2}, Offer: []byte(`{"list":{}}`)}, wrap(ParsePairFleet)},
	{PairClaim{Sig: [64]byte{9, 63: 8}}, wrap(ParsePairClaim)},
	{Servers{}, wrap(ParseServers)},
	{Servers{Addresses: []string{"vps.example.org:7600", "[2001:db8::1]:7600"}}, wrap(ParseServers)},
}

var state = HopState{Received: 1 << 33, Forwarded: 1 << 32, Rate: 5e6, RTT: 4 * time.Millisecond, AppLimited: true}

// longState has the longest payload there is.
var longState = HopState{Received: 1<<64 - 1, Forwarded: 1<<64 - 1, Rate: 1000 * unit.Gbps, RTT: time.Hour}

var token = Token{7, 15: 8}

var key = HopKey{3, 31: 4}

func wrap[F any](parse func([]byte) (F, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) { return parse(b) }
}

func TestRoundTrip(t *testing.T) {
	for _, c := range frames {
		b := Append(nil, c.f)
		typ, payload, err := NewReader(bytes.NewReader(b)).Next()
		if err != nil || typ != c.f.Type() {
			t.Fatalf("%v: read %v, %v", c.f.Type(), typ, err)
		}
		got, err := c.parse(payload)
		if err != nil || !reflect.DeepEqual(got, any(c.f)) {
			t.Errorf("%v: got %+v, %v; want %+v", typ, got, err, c.f)
		}
		if strings.HasPrefix(typ.String(), "type 0x") {
			t.Errorf("%v has no name", typ)
		}
	}
}

// openEnded are frames whose last field runs to the end of the payload, so
// that a cut may be a valid shorter frame.
var openEnded = map[Type]int{TypeRefuse: 2, TypeOpen: 4, TypeData: 11, TypeReset: 2, TypeAck: 2, TypeHello: 7,
	TypeInitJoin: 50,
	TypeDatagram: 15, TypeFlowEnd: 2, TypeFlowRefused: 8, TypeChoice: 6, TypeClassTable: 2, TypePairStep: 1,
	TypeFacts: 13, TypeTrain: 1, TypeTrouble: 22, TypeHopAuth: 18}

func TestTruncation(t *testing.T) {
	for _, c := range frames {
		payload := c.f.AppendPayload(nil)
		least, open := openEnded[c.f.Type()]
		for n := range payload {
			_, err := c.parse(payload[:n])
			if (!open || n < least) && !errors.Is(err, ErrMalformed) {
				t.Errorf("%v cut to %d of %d bytes: error %v, want ErrMalformed", c.f.Type(), n, len(payload), err)
			}
		}
		if _, err := c.parse(append(payload, make([]byte, MaxPayload)...)); err == nil && c.f.Type() != TypeData {
			t.Errorf("%v: %d bytes too many were taken", c.f.Type(), MaxPayload)
		}
		// The same for the frame as a whole: no cut may look like a clean end.
		whole := Append(nil, c.f)
		for n := 1; n < len(whole); n++ {
			if _, _, err := NewReader(bytes.NewReader(whole[:n])).Next(); err != io.ErrUnexpectedEOF {
				t.Errorf("%v frame cut to %d bytes: %v, want io.ErrUnexpectedEOF", c.f.Type(), n, err)
			}
		}
	}
}

func TestOtherVersionIsNotMalformed(t *testing.T) {
	if f, err := ParseJoin([]byte{9, 1, 2, 3}); err != nil || f.Version != 9 {
		t.Errorf("MP_JOIN of version 9: %+v, %v", f, err)
	}
	if f, err := ParseHello(append([]byte("mpbond"), 9, 1)); err != nil || f.Version != 9 {
		t.Errorf("HELLO of version 9: %+v, %v", f, err)
	}
	if f, err := ParsePair(append([]byte("mpbond"), 9, 1)); err != nil || f.Version != 9 {
		t.Errorf("PAIR of version 9: %+v, %v", f, err)
	}
	if _, err := ParseHello([]byte("GET / HTTP/1.1")); err == nil || !strings.Contains(err.Error(), "not mpbond") {
		t.Errorf("garbage HELLO: %v", err)
	}
}

func TestTreatOutOfRange(t *testing.T) {
	for _, b := range [][]byte{{0, 1, 0, 0}, {1, 0, 0, 0}, {1, 1, byte(modeCount), 0}} {
		if f, err := ParseClassUpdate(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("% x: %+v, %v", b, f, err)
		}
	}
	if f, err := ParseClassUpdate([]byte{1, 1, byte(modeCount) - 1, 127}); err != nil {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestExpectOutOfRange checks that fields beyond their limits are malformed, and never sent.
func TestExpectOutOfRange(t *testing.T) {
	build := func(at, end DataSeq, in uint64) []byte {
		b := binary.AppendUvarint([]byte{1}, uint64(at))
		return binary.AppendUvarint(binary.AppendUvarint(b, uint64(end)), in)
	}
	for _, b := range [][]byte{build(0, MaxSeq+1, 0), build(MaxSeq+1, 0, 0), build(0, 0, 3600e6+1), build(0, 0,
		1<<63)} {
		if f, err := ParseExpect(b); !errors.Is(err, ErrMalformed) {
			t.Errorf("% x: %+v, %v", b, f, err)
		}
	}
	limit := Expect{Stream: 1, At: MaxSeq, End: MaxSeq, NeededIn: time.Hour}
	if f, err := ParseExpect(build(MaxSeq, MaxSeq, 3600e6)); err != nil || f != limit {
		t.Errorf("%+v, %v", f, err)
	}
	beyond := Expect{Stream: 1, At: MaxSeq + 1, End: MaxSeq + 1, NeededIn: 2 * time.Hour}
	if f, err := ParseExpect(beyond.AppendPayload(nil)); err != nil || f != limit {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := ParseExpect(Expect{Stream: 1, NeededIn: -time.Second}.AppendPayload(nil)); err != nil ||
		f.NeededIn != 0 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestReaderRefusesOversize(t *testing.T) {
	b := AppendHeader(nil, TypeData, MaxPayload+1)
	if _, _, err := NewReader(bytes.NewReader(b)).Next(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v, want ErrTooLarge", err)
	}
}

func TestReaderAnyChunking(t *testing.T) {
	var whole []byte
	for i := range 300 {
		whole = Append(whole, Data{Stream: 1, Seq: DataSeq(i), Bytes: make([]byte, 1+i*211)})
	}
	for name, r := range map[string]io.Reader{
		"whole": bytes.NewReader(whole), "bytes": iotest.OneByteReader(bytes.NewReader(whole)),
		"half": iotest.HalfReader(bytes.NewReader(whole)), "data with EOF": iotest.DataErrReader(bytes.NewReader(whole)),
	} {
		rd := NewReader(r)
		for i := range 300 {
			_, p, err := rd.Next()
			if err != nil {
				t.Fatalf("%s: frame %d: %v", name, i, err)
			}
			if f, err := ParseData(p); err != nil || f.Seq != DataSeq(i) || len(f.Bytes) != 1+i*211 {
				t.Fatalf("%s: frame %d: %v %d bytes, %v", name, i, f.Seq, len(f.Bytes), err)
			}
		}
		if _, _, err := rd.Next(); err != io.EOF {
			t.Errorf("%s: end: %v, want io.EOF", name, err)
		}
		if rd.BytesRead() != uint64(len(whole)) {
			t.Errorf("%s: counted %d bytes of %d", name, rd.BytesRead(), len(whole))
		}
	}
}

func TestAppendDataMatchesFrame(t *testing.T) {
	f := Data{Stream: 5, Seq: 1 << 35, Bytes: []byte("abc")}
	if got := append(AppendData(nil, f.Stream, f.Seq, 3), "abc"...); !bytes.Equal(got, Append(nil, f)) {
		t.Errorf("% x, want % x", got, Append(nil, f))
	}
}

// FuzzFrame feeds arbitrary bytes to every parser; whatever parses must come
// out the same after being written again.
func FuzzFrame(f *testing.F) {
	for i, c := range frames {
		f.Add(uint8(i), c.f.AppendPayload(nil))
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		parse := frames[int(which)%len(frames)].parse
		v, err := parse(b)
		if err != nil {
			return
		}
		if j, ok := v.(Join); ok && j.Version != Version {
			return
		}
		if h, ok := v.(Hello); ok && h.Version != Version {
			return
		}
		if h, ok := v.(Pair); ok && h.Version != Version {
			return
		}
		again, err := parse(v.(Frame).AppendPayload(nil))
		if err != nil || !reflect.DeepEqual(v, again) {
			t.Errorf("%+v written and read again: %+v, %v", v, again, err)
		}
	})
}

// FuzzReader checks that no input makes the reader panic, loop or take more
// than a frame's memory.
func FuzzReader(f *testing.F) {
	f.Add(Append(Append(nil, Open{Stream: 1, Dest: "a:1"}), Bye{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(iotest.HalfReader(bytes.NewReader(b)))
		for {
			if _, _, err := r.Next(); err != nil {
				break
			}
		}
		if int(r.BytesRead()) > len(b) {
			t.Errorf("%d bytes of frames in %d bytes", r.BytesRead(), len(b))
		}
	})
}
