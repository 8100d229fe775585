// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// isGuestInit reports whether this process is process 1 of a guest that enterGuest booted.
func isGuestInit() bool { return os.Getpid() == 1 && os.Args[0] == "/init" }

// TestMain, as process 1 of a guest, sets the guest up, runs the test that the arguments name, and
// stops the guest.
func TestMain(m *testing.M) {
	if !isGuestInit() {
		os.Exit(m.Run())
	}
	code := 1
	if err := setUpGuest(); err != nil {
		fmt.Println("init:", err)
	} else {
		code = m.Run()
	}
	fmt.Printf("%s%d\n", verdictPrefix, code)
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// setUpGuest loads all modules, mounts the file systems, and changes root to the overlay. The
// working directory becomes the one in which the test was started on the host.
func setUpGuest() error {
	if err := loadModules(); err != nil {
		return err
	}
	const shared = "trans=virtio,version=9p2000.L,msize=524288,cache=loose"
	for _, m := range []struct{ source, at, kind, data string }{
		{"host", "/host", "9p", shared},
		{"packages", "/packages", "9p", shared},
		{"tmpfs", "/upper", "tmpfs", ""},
		{"overlay", "/root", "overlay", "lowerdir=/packages:/host,upperdir=/upper/files,workdir=/upper/work"},
		{"proc", "/root/proc", "proc", ""},
		{"sysfs", "/root/sys", "sysfs", ""},
		{"devtmpfs", "/root/dev", "devtmpfs", ""},
		{"tmpfs", "/root/run", "tmpfs", ""},
	} {
		if m.kind == "overlay" {
			if err := errors.Join(os.Mkdir("/upper/files", 0o755), os.Mkdir("/upper/work", 0o755)); err != nil {
				return err
			}
		}
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		flags := uintptr(0)
		if m.kind == "9p" {
			flags = unix.MS_RDONLY
		}
		if err := unix.Mount(m.source, m.at, m.kind, flags, m.data); err != nil {
			return fmt.Errorf("mounting %s: %w", m.at, err)
		}
	}
	return errors.Join(unix.Chroot("/root"), os.Chdir(os.Getenv("HERE")),
		os.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), os.Setenv("HOME", "/tmp"))
}

func loadModules() error {
	list, err := filepath.Glob("/*.ko") // Glob sorts, so dependencies come first
	if err != nil {
		return err
	}
	for _, path := range list {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("loading %s: %w", path, err)
		}
		f.Close()
	}
	return nil
}
