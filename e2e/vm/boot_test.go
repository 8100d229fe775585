// SPDX-License-Identifier: Apache-2.0

// Package vm tests features that need a kernel this machine may not have: pipes over Bluetooth.
// The Bluetooth controllers are emulated in a Debian kernel, which runs in QEMU without KVM.
// `make vm` runs these tests.
//
// Each test boots its own guest within seconds. The guest sees the host's files read-only over
// 9p. An overlay above them takes writes and is discarded at the end. The test binary is the
// guest's /init and runs the same test again inside the guest. QEMU emulates the processor too, so
// the tests assert no timings.
//
//	boot_test.go       on the host: build the initramfs, start QEMU
//	init_test.go       in the guest: process 1
//	roles_test.go      in the guest: server, primary, helper, and a download
//	bluetooth_test.go  two controllers emulated by btvirt
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

// guestEnv names the environment variable that holds the folder built by .ci/guest.
const guestEnv = "MPBOND_TEST_VM"

// guestTimeout bounds a guest's lifetime, including boot.
const guestTimeout = 2 * time.Minute

// verdictPrefix begins the last line that a guest prints. The exit code of the tests follows.
const verdictPrefix = "tests ended with "

// neededModules lists the modules that init or a test needs and that Debian's kernel does not build
// in. They include the algorithms that the kernel would otherwise load by modprobe.
var neededModules = []string{"virtio_pci", "9pnet_virtio", "9p", "overlay",
	"af_alg", "algif_hash", "algif_skcipher", "ecb", "cmac", "ctr", "ccm", "hci_vhci", "rfcomm",
	"mac80211_hwsim", "veth"}

// enterGuest reports whether this process runs in the guest, where the test does its work. On the
// host it boots the guest, prints the guest's output, and passes, fails or skips the test as the
// guest did.
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
	cmd := exec.CommandContext(ctx, qemu,
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-accel", "tcg", "-cpu", "max", "-m", "1G", "-kernel", kernels[0], "-initrd", initrd,
		"-virtfs", fmt.Sprintf(share, "host", "/"),
		"-virtfs", fmt.Sprintf(share, "packages", filepath.Join(guest, "root")),
		"-append", fmt.Sprintf("console=ttyS0 no_timer_check quiet panic=-1 %s=%q HERE=%q"+
			" -- -test.v -test.timeout=%v -test.run=^%s$",
			guestEnv, guest, here, guestTimeout-10*time.Second, t.Name()))
	runtime.LockOSThread() // the kernel sends Pdeathsig when the starting thread ends
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput() // standard input is empty
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

// writeInitrd writes an initramfs in cpio format "newc" (Linux:
// driver-api/early-userspace/buffer-format). It holds this binary as /init and the modules to load
// as /00.ko, /01.ko and so on.
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
		// inode, mode, user, group, links, time, size, 4 device numbers, name length, checksum
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

// listModuleFiles returns the files of neededModules and of all their dependencies, dependencies
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
