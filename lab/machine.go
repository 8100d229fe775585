// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// Machine is a machine that makes transfers.
type Machine struct {
	Name       string `json:"name"`
	Kernel     string `json:"kernel"`
	Processors int    `json:"processors"`
}

// ThisMachine returns the machine that runs this program.
func ThisMachine() Machine {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return Machine{unix.ByteSliceToString(u.Nodename[:]), unix.ByteSliceToString(u.Release[:]), runtime.NumCPU()}
}

// A machine is accurate if it is fit at these rates of each of six links, each measured for
// accuracyLength. Few cells have more than 300 Mbit/s over all links.
var accuracyRates = []unit.Rate{10 * unit.Mbps, 50 * unit.Mbps}

const accuracyLength = 5 * time.Second

// CheckAccuracy calibrates this machine and returns an error unless it is fit.
func CheckAccuracy(ctx context.Context) error {
	for _, rate := range accuracyRates {
		c, err := Calibrate(ctx, rate, accuracyLength)
		if err != nil {
			return err
		}
		if !c.Fit {
			us := func(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
			return fault.New(fault.Unsupported,
				fmt.Errorf("this machine is not accurate enough: at %v the rates are %.2f %% "+
					"off, the added delay is %v (p99), the latest packet %v late", rate, 100*c.RateError, us(c.AddedP99),
					us(c.Lateness.Max)),
				"stop what else runs here, or use another machine; `mpbond-lab calibrate` shows the accuracy")
		}
	}
	return nil
}

// machineLock is the file that LockMachine locks.
const machineLock = "mpbond-lab.lock"

// lockPollInterval is how often LockMachine tries again.
const lockPollInterval = 200 * time.Millisecond

// LockMachine waits until no other process of this machine has a lock that excludes this one, and takes
// it. An exclusive lock excludes all others. unlock gives it back.
func LockMachine(ctx context.Context, exclusive bool) (unlock func(), err error) {
	f, err := openMachineLock()
	if err != nil {
		return nil, err
	}
	how := unix.LOCK_SH
	if exclusive {
		how = unix.LOCK_EX
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(lockPollInterval):
		}
	}
}

// openMachineLock opens the file, and creates it if it is missing. Another user may own it: the kernel
// does not let users create a file there that exists.
func openMachineLock() (*os.File, error) {
	dir := "/run/lock"
	if unix.Access(dir, unix.W_OK) != nil {
		dir = os.TempDir()
	}
	name := filepath.Join(dir, machineLock)
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(name, os.O_RDONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	}
	return f, err
}
