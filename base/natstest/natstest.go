// SPDX-License-Identifier: Apache-2.0

// Package natstest runs real NATS servers with JetStream for tests. It has no part in the data path.
package natstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/base/porttest"
	"mpbond/base/unit"
	"mpbond/base/waittest"
)

// Node is one NATS server. Its methods must not be called concurrently.
type Node struct {
	// URL is where clients connect: "nats://…", or "tls://…" with TLS.
	URL string
	// Dir holds the node's configuration and its store.
	Dir string

	program, config string
	monitor         string // HOST:PORT; "": none
	command         func(argv ...string) *exec.Cmd
	cmd             *exec.Cmd
	links           []*Link // to and from the other nodes; nil: they are connected directly
	disk            *disk   // nil: that of this machine
}

// Options are the options of a cluster.
type Options struct {
	// Nodes is the number of nodes; 0 is 1.
	Nodes int
	// TLS makes clients use TLS. CAFile of the cluster then has the authority that signs for the nodes.
	TLS bool
	// Extra is appended to the configuration of each node.
	Extra string
	// NoJetStream leaves JetStream out.
	NoJetStream bool
	// Monitor makes the nodes count requests: see Requests.
	Monitor bool
	// Partitions connects the nodes through forwarders that can be cut: see Node.Isolate.
	Partitions bool
	// Discreet hides the addresses of the other nodes from clients. So clients use only the Link that they were given.
	Discreet bool
	// DiskSize is the size of a disk for each node, in bytes: see Node.FillDisk. 0: they share that of this machine.
	DiskSize int64
	// Hosts are the addresses of the nodes, where Command prepares programs to run; nil: all run here.
	Hosts []string
	// Names are further host names in the certificates. The addresses are always there.
	Names   []string
	Command func(node int, argv ...string) *exec.Cmd
}

// Cluster is a cluster of NATS servers.
type Cluster struct {
	Nodes  []*Node
	CAFile string // "" without TLS
}

// URLs returns the addresses of all nodes, separated by commas.
func (c *Cluster) URLs() string {
	var list []string
	for _, n := range c.Nodes {
		list = append(list, n.URL)
	}
	return strings.Join(list, ",")
}

// Program returns the path of nats-server. It skips the test if there is none.
func Program(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	built := filepath.Join(filepath.Dir(file), "..", "..", "bin", "nats-server")
	if _, err := os.Stat(built); err == nil {
		return built
	}
	path, err := exec.LookPath("nats-server")
	if err != nil {
		t.Skip("no NATS server here: `.ci/deps nats` builds one")
	}
	return path
}

// Start runs a cluster until the test ends, and waits until its nodes accept clients.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	program, dir := Program(t), t.TempDir()
	c, scheme := &Cluster{}, "nats"
	if o.TLS {
		c.CAFile = WriteCertificates(t, dir, append([]string{"127.0.0.1"}, o.Hosts...), o.Names)
		scheme = "tls"
	}
	n := max(o.Nodes, len(o.Hosts), 1)
	var addrs, routes []string
	for i := range n {
		if o.Hosts != nil {
			addrs, routes = append(addrs, o.Hosts[i]+":4222"), append(routes, o.Hosts[i]+":6222")
		} else {
			addrs, routes = append(addrs, porttest.FreeAddress(t)), append(routes, porttest.FreeAddress(t))
		}
	}
	for i := range n {
		node := newNode(program, filepath.Join(dir, fmt.Sprintf("n%d", i+1)), scheme+"://"+addrs[i])
		if o.Command != nil {
			node.command = func(argv ...string) *exec.Cmd { return o.Command(i, argv...) }
		}
		if o.DiskSize > 0 {
			node.useDisk(t, o.DiskSize)
		}
		c.Nodes = append(c.Nodes, node)
	}
	for i, node := range c.Nodes {
		var b strings.Builder
		fmt.Fprintf(&b, "server_name: n%d\nlisten: %q\n", i+1, addrs[i])
		if !o.NoJetStream {
			fmt.Fprintf(&b, "jetstream { store_dir: %q, max_memory_store: 64MB, max_file_store: 10GB }\n", node.Dir)
		}
		if n > 1 {
			b.WriteString(c.routesOf(t, i, routes, o))
		}
		if o.TLS {
			fmt.Fprintf(&b, "tls { cert_file: %q, key_file: %q }\n", dir+"/node.pem", dir+"/node.key")
		}
		if o.Monitor {
			node.monitor = porttest.FreeAddress(t)
			fmt.Fprintf(&b, "http: %q\n", node.monitor)
		}
		b.WriteString(o.Extra)
		node.begin(t, b.String())
	}
	for _, node := range c.Nodes {
		node.awaitReady(t)
	}
	return c
}

// StartNode runs a node with a whole configuration until the test ends, and waits until it accepts clients at url. dir
// is its directory; the configuration is written beside it.
func StartNode(t testing.TB, dir, url, config string) *Node {
	t.Helper()
	n := newNode(Program(t), dir, url)
	n.begin(t, config)
	n.awaitReady(t)
	return n
}

func newNode(program, dir, url string) *Node {
	return &Node{Dir: dir, URL: url, program: program, config: dir + ".conf",
		command: func(argv ...string) *exec.Cmd { return exec.Command(argv[0], argv[1:]...) }}
}

// begin starts the node with a configuration, until the test ends.
func (n *Node) begin(t testing.TB, config string) {
	t.Helper()
	if err := os.WriteFile(n.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	n.launch(t)
}

// Requests returns how many messages the nodes have got from clients since they started. The cluster needs
// Options.Monitor.
func (c *Cluster) Requests() (sum int64, err error) {
	for _, n := range c.Nodes {
		resp, err := http.Get("http://" + n.monitor + "/varz")
		if err != nil {
			return 0, err
		}
		var v struct {
			Count int64 `json:"in_client_msgs"`
		}
		err = json.NewDecoder(resp.Body).Decode(&v)
		resp.Body.Close()
		if err != nil {
			return 0, err
		}
		sum += v.Count
	}
	return sum, nil
}

// routesOf returns the part of a node's configuration that connects it with the others, whose ports for routes are
// known.
func (c *Cluster) routesOf(t testing.TB, node int, ports []string, o Options) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "cluster { name: test, listen: %q, no_advertise: %v, ", ports[node], o.Discreet)
	if o.Partitions { // the others learn of no address that leads around the forwarders
		b.WriteString(`advertise: "127.0.0.1:1", `)
	}
	b.WriteString("routes: [")
	for to, at := range ports {
		if o.Partitions && to == node {
			continue
		}
		if o.Partitions {
			l := NewLink(t, at, 0)
			c.Nodes[node].links, c.Nodes[to].links = append(c.Nodes[node].links, l), append(c.Nodes[to].links, l)
			at = l.Addr()
		}
		fmt.Fprintf(&b, "%q, ", "nats://"+at)
	}
	b.WriteString("] }\n")
	return b.String()
}

// Restart starts a node again that was killed, with the same address and store.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.launch(t)
	n.awaitReady(t)
}

// launch starts the node's process.
func (n *Node) launch(t testing.TB) {
	t.Helper()
	log, err := os.Create(n.logFile())
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.cmd = n.command(n.program, "-c", n.config)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if n.cmd.SysProcAttr == nil {
		n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (n *Node) logFile() string { return n.config + ".log" }

// awaitReady waits until the node accepts clients.
func (n *Node) awaitReady(t testing.TB) {
	t.Helper()
	waittest.UntilSuccess(t, func() error {
		log, err := os.ReadFile(n.logFile())
		if err == nil && !strings.Contains(string(log), "Server is ready") {
			err = fmt.Errorf("the node is not ready:\n%s", log)
		}
		return err
	})
}

// Kill kills the node, as kill -9 does, and waits until it has ended. It does nothing if it has ended.
func (n *Node) Kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
	n.cmd = nil
}

// Memory returns the memory that the node's process uses.
func (n *Node) Memory(t testing.TB) unit.Bytes {
	t.Helper()
	page, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		t.Skipf("the memory of a process is not known here: %v", err)
	}
	var kilobytes unit.Bytes
	if _, after, found := strings.Cut(string(page), "VmRSS:"); found {
		_, _ = fmt.Sscan(after, &kilobytes)
	}
	return kilobytes << 10
}

// Pause stops the node's process until Resume.
func (n *Node) Pause() { _ = n.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (n *Node) Resume() { _ = n.cmd.Process.Signal(syscall.SIGCONT) }

// WriteCertificates writes an authority's certificate, ca.pem, which it returns the path of, and a certificate for the
// addresses and names with its key, node.pem and node.key, for servers and clients.
func WriteCertificates(t testing.TB, dir string, hosts, names []string) (caFile string) {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, kind string, der []byte) {
		fail(os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mpbond test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	fail(err)
	write("ca.pem", "CERTIFICATE", der)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	fail(err)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "mpbond test node"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, h := range hosts {
		leaf.IPAddresses = append(leaf.IPAddresses, net.ParseIP(h))
	}
	der, err = x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	fail(err)
	write("node.pem", "CERTIFICATE", der)
	der, err = x509.MarshalECPrivateKey(key)
	fail(err)
	write("node.key", "EC PRIVATE KEY", der)
	return filepath.Join(dir, "ca.pem")
}
