// SPDX-License-Identifier: Apache-2.0

// Package vm tests what needs a kernel that this machine may not have: pipes
// over Bluetooth, with controllers emulated in a Debian kernel in QEMU, without
// KVM. `make vm` runs it.
//
// Each test boots a machine of its own in some seconds. Its files are this
// machine's, read-only by 9p, under an overlay that is lost when it ends. The
// test's binary is its /init and runs the same test once more, inside. QEMU
// emulates the processor too, so figures mean nothing there.
//
//	boot_test.go       outside: the initramfs, QEMU
//	init_test.go       inside, as process 1
//	roles_test.go      inside: server, primary, helper, and a download
//	bluetooth_test.go  two controllers by btvirt
package vm

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// guestEnv names the folder that .ci/guest made.
const guestEnv = "MPBOND_TEST_VM"

// guestTimeout bounds a machine's life, boot included.
const guestTimeout = 2 * time.Minute

// verdictPrefix begins the line with which a machine's tests end.
const verdictPrefix = "tests ended with "

// neededModules are what Debian's kernel does not have built in, and init or a test
// needs. The kernel would ask modprobe for the algorithms.
var neededModules = []string{"virtio_pci", "9pnet_virtio", "9p", "overlay",
	"af_alg", "algif_hash", "algif_skcipher", "ecb", "cmac", "ctr", "ccm", "hci_vhci", "rfcomm",
	"mac80211_hwsim", "veth"}

// enterGuest tells whether this is the machine in which the test is to do its work.
// Outside it boots that, prints what comes, and takes over how the test ends.
func enterGuest(t *testing.T) bool {
	t.Helper()
	if isGuestInit() {
		return true
	}
	guest := os.Getenv(guestEnv)
	if guest == "" {
		t.Skip("this boots a virtual machine, for which some 300 MB are fetched: run `make vm`")
	}
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("QEMU is missing: install qemu-system-x86")
	}
	kernels, _ := filepath.Glob(filepath.Join(guest, "root/boot/vmlinuz-*"))
	if len(kernels) != 1 {
		t.Skipf("%s has %d kernels: run .ci/guest", guest, len(kernels))
	}
	initrd := filepath.Join(t.TempDir(), "initrd")
	version := strings.TrimPrefix(filepath.Base(kernels[0]), "vmlinuz-")
	if err := writeInitrd(initrd, filepath.Join(guest, "root/lib/modules", version)); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), guestTimeout)
	defer cancel()
	share := "local,security_model=none,readonly=on,multidevs=remap,mount_tag=%s,path=%s"
	cmd := exec.CommandContext(ctx, qemu, "-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-accel", "tcg", "-cpu", "max", "-m", "1G", "-kernel", kernels[0], "-initrd", initrd,
		"-virtfs", fmt.Sprintf(share, "host", "/"), "-virtfs", fmt.Sprintf(share, "packages", filepath.Join(guest, "root")),
		"-append", fmt.Sprintf("console=ttyS0 no_timer_check quiet panic=-1 %s=%q HERE=%q -- -test.v -test.timeout=%v -test.run=^%s$", guestEnv, guest, here, guestTimeout-10*time.Second, t.Name()))
	runtime.LockOSThread() // for Pdeathsig is sent when the thread ends
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput() // its standard input is empty
	text := strings.ReplaceAll(string(out), "\r", "")
	if err != nil || !strings.Contains(text, "\n"+verdictPrefix+"0\n") {
		t.Fatalf("%v\n%s", err, text)
	}
	if strings.Contains(text, "--- SKIP: "+t.Name()+" ") {
		t.Skip(text)
	}
	t.Log(text)
	return false
}

// writeInitrd writes an initramfs (cpio, "newc": Linux's
// driver-api/early-userspace/buffer-format) with this binary as /init, and what
// it loads as /00.ko, /01.ko and so on.
func writeInitrd(to, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	list, err := listModuleFiles(dir)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	writeEntry := func(name string, data []byte) {
		// inode, mode, user, group, links, time, size, four devices, length of the name, checksum
		fields := [13]int{b.Len(), 0o100755, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0}
		b.WriteString("070701")
		for _, f := range fields {
			fmt.Fprintf(&b, "%08X", f)
		}
		b.WriteString(name + "\x00")
		b.Write(make([]byte, -b.Len()&3))
		b.Write(data)
		b.Write(make([]byte, -b.Len()&3))
	}
	for i, path := range append(list, self) {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%02d.ko", i)
		if path == self {
			name = "init"
		}
		writeEntry(name, data)
	}
	writeEntry("TRAILER!!!", nil)
	return os.WriteFile(to, b.Bytes(), 0o600)
}

// listModuleFiles lists the files of modules and of all that they depend on, those
// first.
func listModuleFiles(dir string) (list []string, err error) {
	order, err := os.ReadFile(filepath.Join(dir, "modules.order"))
	if err != nil {
		return nil, err
	}
	name := func(path string) string {
		return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".ko"), "-", "_")
	}
	files := map[string]string{}
	for _, path := range strings.Fields(string(order)) {
		files[name(path)] = filepath.Join(dir, path)
	}
	seen := map[string]bool{}
	var addModule func(module string) error
	addModule = func(module string) error {
		if seen[module] {
			return nil
		}
		seen[module] = true
		f, err := elf.Open(files[module])
		if err != nil {
			return fmt.Errorf("module %s: %w", module, err)
		}
		defer f.Close()
		info, err := f.Section(".modinfo").Data()
		if err != nil {
			return err
		}
		for field := range strings.SplitSeq(string(info), "\x00") {
			depends, ok := strings.CutPrefix(field, "depends=")
			if !ok || depends == "" {
				continue
			}
			for d := range strings.SplitSeq(depends, ",") {
				if err := addModule(strings.ReplaceAll(d, "-", "_")); err != nil {
					return err
				}
			}
		}
		list = append(list, files[module])
		return nil
	}
	for _, m := range neededModules {
		if err := addModule(m); err != nil {
			return nil, err
		}
	}
	return list, nil
}
