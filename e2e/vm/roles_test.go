// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/identity"
	"mpbond/base/waittest"
)

// runCommand runs a program to completion and fails the test if it fails.
func runCommand(t *testing.T, argv ...string) {
	t.Helper()
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
}

// startProcess starts a program that runs until stop is called or the test ends. stop returns the
// program's output. If the test fails, the output is logged.
func startProcess(t *testing.T, env []string, argv ...string) (stop func() string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceValue(func() string {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		return out.String()
	})
	t.Cleanup(func() {
		if text := stop(); t.Failed() {
			t.Logf("%q: %v\n%s", argv, cmd.ProcessState, text)
		}
	})
	return stop
}

// network holds the addresses of the devices.
type network struct {
	pipeListen   string // where the primary listens for helpers
	pipeTarget   string // what helpers connect to
	serverAddr   string
	helperPrefix []string // wraps the helper's command
}

const fileSize = 1_000_000 // bytes of the downloaded file

// bond is a server, a primary and a helper, which run the real program, and a web server.
type bond struct {
	*testing.T
	home       string
	stopHelper func() string // ends the helper and returns its output
	client     *http.Client
	url        string
	want       [sha256.Size]byte
}

// newBond starts all processes. The primary's own link leads nowhere, so all traffic uses the
// helper.
func newBond(t *testing.T, n network) *bond {
	t.Helper()
	runCommand(t, "ip", "link", "set", "lo", "up")
	runCommand(t, "ip", "link", "add", "nowhere", "type", "veth", "peer", "name", "end")
	b := &bond{T: t, home: t.TempDir()}
	type peer struct {
		at, who string
		role    identity.Role
		addr    []string
	}
	keys := map[string]identity.PublicKey{}
	for _, d := range []string{"server", "primary", "helper"} {
		k, err := identity.CreateKey(filepath.Join(b.home, d, "device.key"))
		if err != nil {
			t.Fatal(err)
		}
		keys[d] = k.Public()
	}
	for _, p := range []peer{
		{"server", "primary", identity.RolePrimary, nil},
		{"primary", "server", identity.RoleServer, []string{n.serverAddr + ":7600"}},
		{"primary", "helper", identity.RoleHelper, nil},
		{"helper", "server", identity.RoleServer, []string{n.serverAddr + ":7600"}},
		{"helper", "primary", identity.RolePrimary, []string{n.pipeTarget}},
	} {
		trust, err := identity.OpenTrust(filepath.Join(b.home, p.at, "trust.toml"))
		if err == nil {
			err = trust.Add(identity.Peer{
				Name:      p.who,
				Roles:     []identity.Role{p.role},
				Key:       keys[p.who],
				Addresses: p.addr,
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	file := make([]byte, fileSize)
	_, _ = io.ReadFull(rand.NewChaCha8([32]byte{7}), file)
	b.want = sha256.Sum256(file)
	l, err := net.Listen("tcp", n.serverAddr+":0")
	if err != nil {
		t.Fatal(err)
	}
	serve := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(file) }
	web := &http.Server{Handler: http.HandlerFunc(serve)}
	go func() { _ = web.Serve(l) }()
	t.Cleanup(func() { web.Close() })
	b.url = "http://" + l.Addr().String()
	proxy := http.ProxyURL(&url.URL{Scheme: "socks5", Host: "127.0.0.1:1080"})
	b.client = &http.Client{Timeout: guestTimeout / 3, Transport: &http.Transport{Proxy: proxy}}

	mpbond := "../../bin/mpbond"
	home := func(d string) []string { return []string{"MPBOND_HOME=" + filepath.Join(b.home, d)} }
	startProcess(t, home("server"), mpbond, "server", "--listen", n.serverAddr+":7600", "--allow", n.serverAddr+"/32")
	startProcess(t, home("primary"), mpbond, "primary",
		"--direct=false", "--interface", "nowhere", "--pipe", n.pipeListen)
	b.stopHelper = startProcess(t, home("helper"), append(n.helperPrefix, mpbond, "helper")...)
	return b
}

// waitHelpedSubflow waits until the helper's subflow is up and returns it.
func (b *bond) waitHelpedSubflow() (p api.Subflow) {
	b.Helper()
	c := client.New(filepath.Join(b.home, "primary/run/primary.sock"))
	defer c.Close()
	waittest.UntilSuccess(b.T, func() error {
		s, err := c.Status(b.Context(), false)
		if err != nil {
			return err
		}
		for _, bond := range s.Bonds {
			for _, p = range bond.Subflows {
				if p.Kind == api.Helped && p.State == api.Up {
					return nil
				}
			}
		}
		return fmt.Errorf("no helped subflow is up: %+v", s.Bonds)
	})
	return p
}

// downloadFile downloads the file and checks it. It calls half once half of it has arrived.
func (b *bond) downloadFile(half func()) {
	b.Helper()
	begun := time.Now()
	r, err := b.client.Get(b.url)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Body.Close()
	sum := sha256.New()
	_, first := io.CopyN(sum, r.Body, fileSize/2)
	half()
	_, rest := io.Copy(sum, r.Body)
	if err := errors.Join(first, rest); err != nil || [sha256.Size]byte(sum.Sum(nil)) != b.want {
		b.Fatalf("the downloaded file is incomplete or differs: %v", err)
	}
	b.Logf("%d bytes in %v: %+v", fileSize, time.Since(begun), b.waitHelpedSubflow())
}
