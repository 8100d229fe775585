// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// CanMount reports whether nodes can have disks of their own: see Options.DiskSize.
func CanMount() bool {
	_, err := exec.LookPath("nsenter")
	return err == nil && os.Geteuid() == 0
}

// disk is a file system in memory. It is in a mount namespace of its own, which ends with the process that holds it:
// so nothing stays mounted, however the test ends.
type disk struct {
	holder int    // process ID
	filled string // path of the file that fills it
}

// useDisk gives the node a disk of that size, until the test ends. It skips the test if CanMount is false.
func (n *Node) useDisk(t testing.TB, size int64) {
	t.Helper()
	if !CanMount() {
		t.Skip("disks of the nodes need root and nsenter (package util-linux)")
	}
	if err := os.Mkdir(n.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `mount -t tmpfs -o size="$1" none "$0" && echo mounted && exec sleep infinity`,
		n.Dir, strconv.FormatInt(size, 10))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("no disk in memory: %v", err)
	}
	pid := cmd.Process.Pid
	n.disk = &disk{pid, filepath.Join(fmt.Sprintf("/proc/%d/root", pid), n.Dir, "filled")}
	command := n.command
	n.command = func(argv ...string) *exec.Cmd {
		return command(append([]string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", pid)}, argv...)...)
	}
}

// FillDisk fills the node's disk, until FreeDisk.
func (n *Node) FillDisk(t testing.TB) {
	t.Helper()
	f, err := os.Create(n.disk.filled)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for b := make([]byte, 64<<10); len(b) > 0; {
		if _, err := f.Write(b); err != nil { // the disk is full, or nearly so
			b = b[:len(b)/2]
		}
	}
}

// FreeDisk ends FillDisk.
func (n *Node) FreeDisk(t testing.TB) {
	t.Helper()
	if err := os.Remove(n.disk.filled); err != nil {
		t.Fatal(err)
	}
}
