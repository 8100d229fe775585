// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/base/natstest"
	"mpbond/base/porttest"
	"mpbond/base/unit"
	"mpbond/control/fleet"
	"mpbond/e2e/rig"
	"mpbond/link/pairing"
	"mpbond/link/wire"
	"mpbond/node/primary"
)

var (
	crowdDevices = flag.Int("crowd", 20, "run TestCrowd with this number of devices; many need root")
	crowdStreams = flag.Int("crowd.streams", 10, "with this number of streams each")
)

// crowd is many devices of a fleet whose servers are processes on this machine. The primaries run in this process.
type crowd struct {
	*rig.Network
	engine  *natstest.Cluster
	servers map[string]*rig.Process
	// addresses are those of the servers, by name.
	addresses map[string]string
	echo      string // address of a server that echoes
	devices   []*crowdDevice
	running   sync.WaitGroup // the devices
}

// crowdDevice is a device with streams that stay open.
type crowdDevice struct {
	code    string
	primary *primary.Primary
	streams []net.Conn
}

// TestCrowd kills the server of many devices and drains that of others. It prints how long devices had no service,
// how the load divides, and what devices and streams cost a server. It fails if a device gets no service, or if a
// drain cuts a stream.
func TestCrowd(t *testing.T) {
	if *crowdDevices > maxAtOneAddress && !runFromManyAddresses(t) {
		return
	}
	c, ctx := newCrowd(t, serverNames, nil)
	before := c.memory()
	c.invite(*crowdDevices)
	c.enroll(ctx)
	idle := c.memory()
	c.eachDevice(func(d *crowdDevice) error {
		for range *crowdStreams {
			s, err := c.openStream(ctx, d)
			if err != nil {
				return err
			}
			d.streams = append(d.streams, s)
		}
		return nil
	})
	busy := c.memory()
	n := unit.Bytes(len(c.devices))
	t.Logf("%d devices, %d streams: %v", n, int(n)**crowdStreams, c.bonds())
	t.Logf("memory of the servers: %v, %v for each idle device, %v for each stream", before, (idle-before)/n,
		(busy-idle)/(n*unit.Bytes(*crowdStreams)))
	c.drainOne(ctx)
	c.killOne(ctx)
}

// newCrowd starts a fleet. Its devices run until ctx ends, with the test. within has a command prefix for servers that
// need one, by name.
func newCrowd(t *testing.T, servers []string, within map[string][]string) (c *crowd, ctx context.Context) {
	t.Helper()
	c = &crowd{Network: rig.New(t, rig.Options{}), servers: map[string]*rig.Process{}, addresses: map[string]string{}}
	c.engine = natstest.Start(t, natstest.Options{Nodes: 3, Monitor: true})
	c.start(servers, within)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		c.running.Wait()
	})
	return c, ctx
}

// start starts the fleet and a server that echoes.
func (c *crowd) start(names []string, within map[string][]string) {
	rig.Eventually(c, func() error {
		_, err := c.Run("operator", c.Mpbond, "fleet", "init", "acme", "--fleet", c.engine.URLs())
		return err
	})
	for _, name := range names {
		_, port, err := net.SplitHostPort(porttest.FreeAddress(c))
		if err != nil {
			c.Fatal(err)
		}
		at := net.JoinHostPort(serverHost(), port)
		var key struct{ Key string }
		if err := c.JSON(&key, name, "keygen", "--json"); err != nil {
			c.Fatal(err)
		}
		c.Must("operator", c.Mpbond, "fleet", "add", name, "--key", key.Key, "--addr", at, "--region", "eu")
		c.addresses[name] = at
		c.servers[name] = c.Start(name, slices.Concat(within[name], []string{c.Mpbond, "server", "--listen", at, "--allow",
			"127.0.0.0/8", "--name", name, "--fleet", c.engine.URLs(), "--log-level", "warn"})...)
	}
	c.echo = c.startStreamServer(echoProgram)
	rig.Eventually(c, func() error {
		if b := c.bonds(); len(b) != len(names) {
			return fmt.Errorf("servers %v run", b)
		}
		return nil
	})
}

// startStreamServer starts a server of streams, echoProgram or sourceProgram, and returns its address.
func (c *crowd) startStreamServer(program string) string {
	c.Helper()
	at := porttest.FreeAddress(c)
	c.Start(program, os.Args[0], "lab", program, at)
	rig.Eventually(c, func() error {
		s, err := net.Dial("tcp", at)
		if err == nil {
			s.Close()
		}
		return err
	})
	return at
}

// bonds returns the bonds of each server that runs.
func (c *crowd) bonds() map[string]int {
	m := map[string]int{}
	for name := range c.servers {
		if s, err := c.Status(name, "server"); err == nil && s.Fleet != nil && s.Fleet.AgeSeconds >= 0 {
			m[name] = len(s.Bonds)
		}
	}
	return m
}

// memory returns the memory of all servers.
func (c *crowd) memory() (sum unit.Bytes) {
	for name := range c.servers {
		s, err := c.Status(name, "server")
		if err != nil {
			c.Fatal(err)
		}
		sum += s.MemoryBytes
	}
	return sum
}

// eachDevice calls f for all devices, some at once.
func (c *crowd) eachDevice(f func(*crowdDevice) error) {
	c.Helper()
	var g sync.WaitGroup
	slots := make(chan bool, 8) // those at one address
	for _, d := range c.devices {
		g.Go(func() {
			slots <- true
			defer func() { <-slots }()
			if err := f(d); err != nil {
				c.Error(err)
			}
		})
	}
	g.Wait()
	if c.Failed() {
		c.FailNow()
	}
}

// invite makes devices that have a code each.
func (c *crowd) invite(count int) {
	for line := range strings.Lines(c.Must("operator", c.Mpbond, "fleet", "invite", "--json", "--count",
		strconv.Itoa(count))) {
		var inv struct{ Code string }
		if err := json.Unmarshal([]byte(line), &inv); err != nil {
			c.Fatal(err)
		}
		c.devices = append(c.devices, &crowdDevice{code: inv.Code})
	}
}

// enroll has the devices join the fleet, and waits until each has its server.
func (c *crowd) enroll(ctx context.Context) {
	c.eachDevice(func(d *crowdDevice) error {
		code, err := pairing.ParseCode(d.code)
		if err != nil {
			return err
		}
		dir := c.TempDir()
		key, err := identity.Generate()
		if err != nil {
			return err
		}
		trust, err := identity.OpenTrust(filepath.Join(dir, "trust.toml"))
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "fleet.json")
		self := pairing.Self{Key: key, Trust: trust,
			About: func() wire.PairIdentity { return wire.PairIdentity{Roles: wire.PairPrimary, Name: "device"} },
			CheckFleet: func(fleetKey identity.PublicKey, offer []byte) error {
				return fleet.CheckJoin(file, trust, fleetKey, offer)
			},
			JoinFleet: func(fleetKey identity.PublicKey, offer []byte, server identity.PublicKey) (identity.Peer,
				error) {
				return fleet.Join(file, trust, fleetKey, offer, server)
			}}
		met, err := pairing.CallAny(ctx, code, self)
		if err != nil {
			return err
		}
		if _, err := met.Finish(ctx); err != nil {
			return err
		}
		cfg := primary.Default
		cfg.Pipe, cfg.Interfaces = "", nil
		cfg.LoadFleet = func() (*fleet.Joined, error) { return fleet.LoadJoined(file, trust) }
		if d.primary, err = primary.New(cfg, key, trust, slog.New(slog.DiscardHandler), nil); err != nil {
			return err
		}
		c.running.Go(func() { _ = d.primary.Run(ctx) })
		s, err := c.openStream(ctx, d)
		if err != nil {
			return err
		}
		return s.Close()
	})
}

// openStream opens a stream to the echo, and checks that it works.
func (c *crowd) openStream(ctx context.Context, d *crowdDevice) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := d.primary.DialStream(ctx, c.echo)
	if err != nil {
		return nil, err
	}
	return s, echoes(s)
}

// echoes sends a byte and waits for it to come back.
func echoes(s net.Conn) error {
	_ = s.SetDeadline(time.Now().Add(20 * time.Second))
	defer s.SetDeadline(time.Time{})
	if _, err := s.Write([]byte{7}); err != nil {
		return err
	}
	_, err := io.ReadFull(s, make([]byte, 1))
	return err
}

// serverOf returns the server of a device.
func serverOf(d *crowdDevice) string { return d.primary.Status(false).Peer }

// hasSubflow reports whether a device has a subflow.
func hasSubflow(d *crowdDevice) bool {
	return slices.ContainsFunc(d.primary.Status(false).Subflows, func(s api.Subflow) bool { return s.State == api.Up })
}

// drainOne drains a server, waits until its devices, which are in use, use others, and checks that no stream was cut.
func (c *crowd) drainOne(ctx context.Context) {
	const name = "eu1"
	began := time.Now()
	c.Must("operator", c.Mpbond, "fleet", "drain", name)
	moved := 0
	rig.Eventually(c, func() error {
		left := 0
		for _, d := range c.devices {
			if serverOf(d) == name {
				left++
			}
		}
		moved = max(moved, left)
		c.eachDevice(func(d *crowdDevice) error {
			for _, s := range d.streams {
				_ = echoes(s) // the streams that were cut are counted below
			}
			return nil
		})
		if left > 0 {
			return fmt.Errorf("%d devices still use %s", left, name)
		}
		return nil
	})
	c.Logf("%s drained: its %d devices use other servers after %v", name, moved, time.Since(began).Round(time.Second))
	cut := 0
	for _, d := range c.devices {
		for _, s := range d.streams {
			if echoes(s) != nil {
				cut++
			}
		}
	}
	c.Logf("%d of %d streams were cut", cut, len(c.devices)**crowdStreams)
	if cut > 0 {
		c.Errorf("a drain cut %d streams", cut)
	}
	c.eachDevice(func(d *crowdDevice) error { _, err := c.openStream(ctx, d); return err })
	c.Logf("bonds by server: %v", c.bonds())
	c.Must("operator", c.Mpbond, "fleet", "undrain", name)
	rig.Eventually(c, func() error {
		s, err := c.Status(name, "server")
		if err == nil && s.Fleet.Draining {
			err = errors.New("it drains")
		}
		return err
	})
	if *crowdDevices <= maxAtOneAddress {
		return
	}
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); { // devices ask after 10 s of use
		c.eachDevice(func(d *crowdDevice) error {
			for _, s := range d.streams {
				if err := echoes(s); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// killOne kills the server that most devices use, and measures how long they had no service.
func (c *crowd) killOne(ctx context.Context) {
	name := ""
	by := map[string]int{} // a server that has drained may still have bonds
	for _, d := range c.devices {
		by[serverOf(d)]++
	}
	for _, s := range serverNames {
		if name == "" || by[s] > by[name] {
			name = s
		}
	}
	var affected []*crowdDevice
	for _, d := range c.devices {
		if serverOf(d) == name {
			affected = append(affected, d)
		}
	}
	c.servers[name].End(syscall.SIGKILL)
	killed := time.Now()
	var mu sync.Mutex
	var without []time.Duration
	var g sync.WaitGroup
	for _, d := range affected {
		g.Go(func() {
			for ctx.Err() == nil {
				s, err := c.openStream(ctx, d)
				if err != nil {
					continue
				}
				mu.Lock()
				without = append(without, time.Since(killed))
				mu.Unlock()
				s.Close()
				return
			}
		})
	}
	g.Wait()
	slices.Sort(without)
	if len(without) < len(affected) || len(affected) == 0 {
		c.Fatalf("%d of %d devices have service again", len(without), len(affected))
	}
	at := func(p int) time.Duration {
		return without[min(len(without)*p/100, len(without)-1)].Round(time.Millisecond)
	}
	c.Logf("%s was killed: %d devices without service: median %v, 99 %% %v, longest %v", name, len(affected), at(50),
		at(99),
		at(100))
	for _, d := range c.devices {
		if !hasSubflow(d) || serverOf(d) == name {
			c.Errorf("a device has no subflow, or uses %s: %s", name, serverOf(d))
		}
	}
	c.Logf("bonds by server: %v", c.bonds())
}
