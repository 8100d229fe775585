// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"mpbond/base/unit"
)

// fleetDemo shows a fleet of servers: three in two regions, two primaries, and an engine of three nodes.
type fleetDemo struct {
	lab       *Lab
	dir       string
	mpbond    string
	nats      string // path of nats-server; "": the engine is a directory
	printLine func(format string, args ...any)

	engine  string
	servers map[string]*exec.Cmd
	running []*exec.Cmd
	hosts   map[string]string // address of each node
}

// Parameters of the demo.
const (
	fleetStepTimeout = time.Minute
	fleetFile        = 40 * unit.MB // at its rate, the download takes half a minute
	fleetFileRate    = "1300k"
)

var fleetServers = []string{"eu1", "eu2", "us1"}

// FleetDemo shows a fleet in an emulated network: it kills a server, drains another, and revokes a device. printLine
// gets a line for each step. Without a program nats-server, beside this one or in PATH, the engine is a directory.
func FleetDemo(ctx context.Context, printLine func(format string, args ...any)) (err error) {
	d := &fleetDemo{printLine: printLine, servers: map[string]*exec.Cmd{}, hosts: map[string]string{}}
	if d.mpbond, err = findProgram("mpbond"); err != nil {
		return err
	}
	if d.nats, err = findProgram("nats-server"); err != nil {
		d.nats = ""
	}
	if d.dir, err = os.MkdirTemp("", "mpbond-fleet-"); err != nil {
		return err
	}
	defer func() {
		if err == nil {
			err = os.RemoveAll(d.dir)
		} else {
			err = fmt.Errorf("%w (logs are in %s)", err, d.dir)
		}
	}()
	if d.lab, err = Up(d.topology(), Options{Name: "fleet", EndWithProcess: true}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.lab.Down()) }()
	defer d.stopAll()
	for _, step := range []func(context.Context) error{d.startEngine, d.startServers, d.joinDevices, d.killServer,
		d.drainServer, d.revokeDevice, d.showUsage} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// topology returns the network: all nodes at one router, the server of the far region 40 ms away.
func (d *fleetDemo) topology() *Topology {
	t := &Topology{Node: map[string]*Node{"hub": {Forward: true}}, Link: map[string]*Link{}}
	for i, n := range []struct{ name, delay string }{{"laptop", "5ms"}, {"phone", "5ms"}, {"eu1", "5ms"}, {"eu2",
		"5ms"},
		{"us1", "40ms"}, {"web", ""}, {"operator", ""}, {"n1", ""}, {"n2", ""}, {"n3", ""}} {
		link := "l-" + n.name
		d.hosts[n.name] = fmt.Sprintf("10.60.%d.2", i)
		t.Node[n.name] = &Node{Routes: []string{"default via " + link}}
		t.Link[link] = &Link{Ends: [2]string{n.name, "hub"},
			Addresses: [2][]string{{d.hosts[n.name] + "/24"}, {fmt.Sprintf("10.60.%d.1/24", i)}}}
		if n.delay != "" {
			t.Link[link].LinkSettings = LinkSettings{Rate: "40Mbit/s", Delay: n.delay}
		}
	}
	return t
}

// command prepares a program in a node, with a directory of its own for mpbond's files.
func (d *fleetDemo) command(ctx context.Context, node string, argv ...string) (*exec.Cmd, error) {
	cmd, err := d.lab.Command(ctx, node, argv...)
	if err == nil {
		cmd.Env = append(os.Environ(), "MPBOND_HOME="+filepath.Join(d.dir, node))
	}
	return cmd, err
}

// start starts a program in a node.
func (d *fleetDemo) start(node string, argv ...string) (*exec.Cmd, error) {
	cmd, err := d.command(context.Background(), node, argv...)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(d.dir, fmt.Sprintf("%s-%d.log", node, len(d.running))))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d.running = append(d.running, cmd)
	return cmd, nil
}

// stopAll ends all programs.
func (d *fleetDemo) stopAll() {
	for _, cmd := range slices.Backward(d.running) {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
}

// run runs a program in a node and returns its standard output.
func (d *fleetDemo) run(ctx context.Context, node string, argv ...string) (string, error) {
	cmd, err := d.command(ctx, node, argv...)
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %s: %w: %s", node, strings.Join(argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), err
}

// operate runs a command of the fleet's operator.
func (d *fleetDemo) operate(ctx context.Context, args ...string) (string, error) {
	return d.run(ctx, "operator", append([]string{d.mpbond, "fleet"}, args...)...)
}

// await calls f until it returns no error.
func (d *fleetDemo) await(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, fleetStepTimeout)
	defer cancel()
	var last error
	err := pollUntil(ctx, 20*time.Millisecond, func() (bool, error) {
		last = f()
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// startEngine starts the engine and makes the fleet.
func (d *fleetDemo) startEngine(ctx context.Context) error {
	what := "a directory (for three nodes of NATS: .ci/deps nats)"
	d.engine = "file:" + filepath.Join(d.dir, "engine")
	if d.nats != "" {
		what = "three nodes of NATS"
		var urls, routes []string
		for _, n := range []string{"n1", "n2", "n3"} {
			urls, routes = append(urls, "nats://"+d.hosts[n]+":4222"), append(routes, "nats://"+d.hosts[n]+":6222")
		}
		for _, n := range []string{"n1", "n2", "n3"} {
			if _, err := d.start(n, d.nats, "-n", n, "-a", d.hosts[n], "-p", "4222", "-js", "-sd",
				filepath.Join(d.dir, n),
				"--cluster_name", "fleet", "--cluster", "nats://"+d.hosts[n]+":6222", "--routes", strings.Join(routes,
					",")); err != nil {
				return err
			}
		}
		d.engine = strings.Join(urls, ",")
	}
	d.printLine("engine: %s", what)
	return d.await(ctx, func() error {
		_, err := d.operate(ctx, "init", "acme", "--fleet", d.engine)
		return err
	})
}

// startServers starts the servers and puts them on the fleet's list.
func (d *fleetDemo) startServers(ctx context.Context) error {
	for _, name := range fleetServers {
		made, err := d.run(ctx, name, d.mpbond, "keygen", "--json")
		if err != nil {
			return err
		}
		var own struct{ Key string }
		if err := json.Unmarshal([]byte(made), &own); err != nil {
			return err
		}
		if err := d.startServer(name); err != nil {
			return err
		}
		if _, err = d.operate(ctx, "add", name, "--key", own.Key, "--addr", d.hosts[name]+":7600", "--region",
			name[:2]); err != nil {
			return err
		}
	}
	www := filepath.Join(d.dir, "www")
	if err := os.MkdirAll(www, 0o755); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(d.dir, 0o755), os.WriteFile(filepath.Join(www, "small"), make([]byte, 1000), 0o644),
		os.WriteFile(filepath.Join(www, "large"), make([]byte, fleetFile), 0o644)); err != nil {
		return err
	}
	conf := filepath.Join(d.dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, d.dir, webPort, "  access_log off;\n"),
		0o644); err != nil {
		return err
	}
	if _, err := d.start("web", "nginx", "-c", conf, "-e", "stderr"); err != nil {
		return err
	}
	err := d.await(ctx, func() error {
		st, err := d.status(ctx)
		for _, name := range fleetServers {
			if err == nil && !st[name].Running {
				err = fmt.Errorf("%s does not run", name)
			}
		}
		return err
	})
	if err == nil {
		d.printLine("servers: eu1 and eu2 in region eu, 20 ms from the devices; us1 in region us, 90 ms")
	}
	return err
}

func (d *fleetDemo) startServer(name string) (err error) {
	d.servers[name], err = d.start(name, d.mpbond, "server", "--allow", "10.60.0.0/16", "--name", name, "--region",
		name[:2],
		"--fleet", d.engine)
	return err
}

// fleetServerStatus is what the demo reads of `fleet status --json`.
type fleetServerStatus struct {
	Name              string
	Running, Draining bool
	Bonds, Streams    int
}

func (d *fleetDemo) status(ctx context.Context) (map[string]fleetServerStatus, error) {
	out, err := d.operate(ctx, "status", "--json")
	if err != nil {
		return nil, err
	}
	var r struct{ Servers []fleetServerStatus }
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return nil, err
	}
	m := map[string]fleetServerStatus{}
	for _, s := range r.Servers {
		m[s.Name] = s
	}
	return m, nil
}

// joinDevices has two devices join by a code each.
func (d *fleetDemo) joinDevices(ctx context.Context) error {
	for _, name := range []string{"laptop", "phone"} {
		out, err := d.operate(ctx, "invite", "--name", name, "--region", "eu", "--json")
		if err != nil {
			return err
		}
		var inv struct{ Code string }
		if err := json.Unmarshal([]byte(out), &inv); err != nil {
			return err
		}
		if _, err := d.run(ctx, name, d.mpbond, "pair", inv.Code); err != nil {
			return err
		}
		if _, err := d.start(name, d.mpbond, "primary"); err != nil {
			return err
		}
		if err := d.await(ctx, func() error { return d.fetch(ctx, name) }); err != nil {
			return err
		}
	}
	laptop, err := d.serverOf(ctx, "laptop")
	if err != nil {
		return err
	}
	phone, err := d.serverOf(ctx, "phone")
	if err == nil {
		d.printLine("laptop and phone joined by one code each: laptop uses %s, phone uses %s", laptop, phone)
	}
	return err
}

// fetch has an app in a node download a small file over the bond.
func (d *fleetDemo) fetch(ctx context.Context, node string) error {
	_, err := d.run(ctx, node, "curl", "-sSf", "--max-time", "10", "-o", "/dev/null", "--proxy",
		"socks5://127.0.0.1:1080",
		"http://"+d.hosts["web"]+"/small")
	return err
}

// serverOf returns the server that a device uses.
func (d *fleetDemo) serverOf(ctx context.Context, node string) (string, error) {
	out, err := d.run(ctx, node, d.mpbond, "status", "--json")
	if err != nil {
		return "", err
	}
	var st struct{ Fleet struct{ Server string } }
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		return "", err
	}
	if d.servers[st.Fleet.Server] == nil {
		return "", fmt.Errorf("%s has no server", node)
	}
	return st.Fleet.Server, nil
}

// killServer kills the laptop's server.
func (d *fleetDemo) killServer(ctx context.Context) error {
	was, err := d.serverOf(ctx, "laptop")
	if err != nil {
		return err
	}
	_ = syscall.Kill(-d.servers[was].Process.Pid, syscall.SIGKILL)
	began := time.Now()
	if err := d.await(ctx, func() error { return d.fetch(ctx, "laptop") }); err != nil {
		return err
	}
	took := time.Since(began)
	now, err := d.serverOf(ctx, "laptop")
	if err != nil {
		return err
	}
	d.printLine("%s is killed: laptop's next connection worked after %.1f s, at %s", was, took.Seconds(), now)
	return d.startServer(was)
}

// drainServer drains the phone's server while the phone downloads.
func (d *fleetDemo) drainServer(ctx context.Context) error {
	was, err := d.serverOf(ctx, "phone")
	if err != nil {
		return err
	}
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := d.run(ctx, "phone", "curl", "-sSf", "--max-time", "120", "-o", "/dev/null", "-w",
			"%{size_download}",
			"--limit-rate", fleetFileRate, "--proxy", "socks5://127.0.0.1:1080", "http://"+d.hosts["web"]+"/large")
		done <- result{out, err}
	}()
	if err := d.await(ctx, func() error {
		st, err := d.status(ctx)
		if err == nil && st[was].Streams == 0 {
			err = errors.New("the download has not begun")
		}
		return err
	}); err != nil {
		return err
	}
	if _, err := d.operate(ctx, "drain", was); err != nil {
		return err
	}
	now := was
	if err := d.await(ctx, func() (err error) {
		if now, err = d.serverOf(ctx, "phone"); err == nil && now == was {
			err = fmt.Errorf("the phone still uses %s", was)
		}
		return err
	}); err != nil {
		return err
	}
	if err := d.fetch(ctx, "phone"); err != nil {
		return err
	}
	d.printLine("%s drains: phone's new connections use %s, its download goes on", was, now)
	r := <-done
	if r.err != nil {
		return r.err
	}
	if r.out != fmt.Sprint(int(fleetFile)) {
		return fmt.Errorf("the download ended after %s bytes", r.out)
	}
	d.printLine("the download over %s ended well, after all of its %v", was, fleetFile)
	_, err = d.operate(ctx, "undrain", was)
	return err
}

// revokeDevice revokes the laptop.
func (d *fleetDemo) revokeDevice(ctx context.Context) error {
	began := time.Now()
	if _, err := d.operate(ctx, "revoke", "laptop"); err != nil {
		return err
	}
	took := time.Since(began)
	if err := d.fetch(ctx, "laptop"); err == nil {
		return errors.New("the revoked laptop is still served")
	}
	if err := d.fetch(ctx, "phone"); err != nil {
		return err
	}
	d.printLine("laptop is revoked: all servers confirmed it after %.1f s; it is refused, phone goes on", took.Seconds())
	return nil
}

// showUsage prints what the devices have carried.
func (d *fleetDemo) showUsage(ctx context.Context) error {
	out, err := d.operate(ctx, "usage")
	for line := range strings.Lines(out) {
		d.printLine("%s", strings.TrimRight(line, "\n"))
	}
	return err
}
