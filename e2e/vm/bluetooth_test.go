// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"mpbond/base/waittest"
)

// ioctl requests of the kernel's Bluetooth sockets (include/net/bluetooth/hci_sock.h).
const (
	hciDevUp      = 0x400448c9
	hciGetDevInfo = 0x800448d3
	hciSetScan    = 0x400448dd
	scanPage      = 2 // accept connections
)

// startControllers starts two emulated controllers within range of each other and returns their
// addresses.
func startControllers(t *testing.T) (list [2]string) {
	t.Helper()
	startProcess(t, nil, "btvirt", "-l2")
	fd, err := unix.Socket(unix.AF_BLUETOOTH, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.BTPROTO_HCI)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for i := range list {
		waittest.UntilSuccess(t, func() error {
			if _, err := os.Stat(fmt.Sprintf("/sys/class/bluetooth/hci%d", i)); err != nil {
				return err
			}
			if err := unix.IoctlSetInt(fd, hciDevUp, i); err != nil && err != unix.EALREADY {
				return fmt.Errorf("hci%d up: %w", i, err)
			}
			return nil
		})
		scan := struct {
			device uint16
			option uint32
		}{uint16(i), scanPage}
		info := struct {
			device uint16
			name   [8]byte
			addr   [6]byte
			rest   [240]byte
		}{device: uint16(i)}
		for request, at := range map[uintptr]unsafe.Pointer{
			hciSetScan:    unsafe.Pointer(&scan),
			hciGetDevInfo: unsafe.Pointer(&info),
		} {
			if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(at)); e != 0 {
				t.Fatalf("hci%d: request %x: %v", i, request, e)
			}
		}
		a := info.addr
		list[i] = fmt.Sprintf("%02X:%02X:%02X:%02X:%02X:%02X", a[5], a[4], a[3], a[2], a[1], a[0])
	}
	return list
}

// TestCarrier runs package pipe's contract tests for carriers over RFCOMM, together with its other
// tests that run over every carrier.
func TestCarrier(t *testing.T) {
	if !enterGuest(t) {
		return
	}
	runCommand(t, "ip", "link", "set", "lo", "up")
	cmd := exec.Command(filepath.Join(os.Getenv(guestEnv), "pipe.test"),
		"-test.v", "-test.timeout=90s", "-test.run=/^rfcomm$")
	cmd.Env = append(os.Environ(), "MPBOND_TEST_RFCOMM="+startControllers(t)[0]+"/5")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
	err := cmd.Run()
	if err != nil {
		t.Error(err)
	}
}

// TestBluetoothPipe checks that a download goes over a Bluetooth pipe.
func TestBluetoothPipe(t *testing.T) {
	if !enterGuest(t) {
		return
	}
	addr := startControllers(t)[0]
	b := newBond(t, network{pipeListen: "rfcomm://5", pipeTarget: "rfcomm://" + addr + "/5", serverAddr: "127.0.0.1"})
	p := b.waitHelpedSubflow()
	b.downloadFile(func() {})
	after := b.waitHelpedSubflow()
	if !strings.HasPrefix(after.Pipe, "rfcomm://") || after.RxBytes-p.RxBytes < fileSize {
		t.Errorf("the download did not go over the Bluetooth pipe: %+v", after)
	}
	if log := b.stopHelper(); strings.Contains(log, "level=WARN") {
		t.Errorf("the helper logged warnings:\n%s", log)
	}
}
