// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestOrdinaryUser runs this binary as nobody in a mount namespace where /dev/net/tun is open to
// all, as in distributions.
func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	needLab(t)
	if b, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err == nil && strings.TrimSpace(string(b)) == "0" {
		t.Skip("needs user namespaces (sysctl user.max_user_namespaces)")
	}
	dir, err := os.MkdirTemp("", "lu")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	exe, _ := os.Executable()
	script := `set -e; cd "$1"; chmod 755 .; mkdir dev; mount -t tmpfs none dev
mknod -m 666 dev/tun c 10 200; mount --bind dev/tun /dev/net/tun
cp "$2" bin; chmod 755 bin; mkdir run; chown nobody run
exec setpriv --reuid=nobody --regid=nogroup --clear-groups \
	env XDG_RUNTIME_DIR="$1/run" LAB_USER_TEST=1 ./bin -test.run '^TestAsUser$' -test.v`
	out, err := exec.Command("unshare", "--mount", "sh", "-c", script, "sh", dir, exe).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestAsUser")) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
}

// TestAsUser is the part of TestOrdinaryUser that runs as nobody.
func TestAsUser(t *testing.T) {
	if os.Getenv("LAB_USER_TEST") == "" {
		t.Skip("run by TestOrdinaryUser")
	}
	top, err := ParseTopology([]byte(pairTopology+"delay=\"5ms\""), ".")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Up(top, Options{EndWithProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := l.Command(context.Background(), "a", "sh", "-c", "ip route add 10.99.0.0/16 dev l && exit 5")
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 5 {
		t.Errorf("in a: %s", out)
	}
	serveInNode(t, l, "b", true, "test-echo")
	ping, out := startCommand(t, l, "a", "test-ping", "10.77.1.2")
	if err := ping.Wait(); err != nil || parseNumbers(t, out)[0] < 1e7 {
		t.Error(err, out)
	}
	if err := l.Down(); err != nil {
		t.Error(err)
	}
}

// The main thread must not be used: it would never end and would stay in the namespace.
func TestOnThread(t *testing.T) {
	for range 100 {
		if err := runOnThread(func() error {
			if syscall.Gettid() == os.Getpid() {
				return errors.New("on the main thread")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
