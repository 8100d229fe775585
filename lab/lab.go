// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultName is the name of a lab without a name.
const DefaultName = "lab"

const socketName = "control"

// Lab is a network that is up. Its methods are safe for concurrent use.
type Lab struct {
	Name     string
	Topology *Topology
	// Warnings say what this machine or user does not allow.
	Warnings []string

	dir         string
	info        daemonInfo
	daemonStdin io.Closer // the daemon ends when it is closed; or nil

	mu     sync.Mutex
	client *daemonClient // guarded by mu
}

// Options are the options of Up.
type Options struct {
	Name string // DefaultName if empty
	Pcap string // directory for packet captures, or none
	// PcapBytes is how many bytes of each packet captures have; 0: all.
	PcapBytes int
	// EndWithProcess takes the lab down when this process ends, for whatever reason. Other labs
	// stay until Down.
	EndWithProcess bool
	// Program is the path of the binary that the background process runs, this program's if empty.
	Program string
}

// Up emulates a topology in a background process and returns when every node is ready. The process
// runs Options.Program with the arguments "lab daemon", which must call RunDaemon ("lab guard" must
// call RunGuard).
func Up(t *Topology, o Options) (*Lab, error) {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if !namePattern.MatchString(o.Name) {
		return nil, fmt.Errorf("lab name %q: a letter, then up to 14 letters, digits, - or _", o.Name)
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	if o.Pcap != "" {
		var err error
		if o.Pcap, err = filepath.Abs(o.Pcap); err != nil {
			return nil, err
		}
	}
	addSbinToPath()
	unlock, err := lockRuntimeRoot() // one at a time
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir, err := claimLabDir(o.Name)
	if err != nil {
		return nil, err
	}
	tie, err := startDaemon(o.Program, daemonSpec{o.Name, dir, o.Pcap, o.PcapBytes, o.EndWithProcess, t})
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	l, err := Open(o.Name)
	if err != nil {
		return nil, err
	}
	l.daemonStdin = tie
	return l, nil
}

// upTimeout is how long a daemon may take to build its network.
const upTimeout = time.Minute

var labCounter atomic.Int32

// uniqueName returns a lab name that only this process uses.
func uniqueName(kind string) string {
	return fmt.Sprintf("%s-%d-%d", kind, os.Getpid(), labCounter.Add(1)%100)
}

// startDaemon starts the background process by a program, this one if that is "", and waits until
// it is ready. For an ordinary user it runs in a user namespace, where it is root.
func startDaemon(program string, spec daemonSpec) (tie io.Closer, err error) {
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	log, err := os.Create(filepath.Join(spec.Dir, "daemon.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, "lab", "daemon")
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the lab's daemon: %w (it needs root, or user namespaces: sysctl "+
			"user.max_user_namespaces, kernel.unprivileged_userns_clone)", err)
	}
	timer := time.AfterFunc(upTimeout, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var a response
	err = json.NewEncoder(in).Encode(spec)
	if e := json.NewDecoder(out).Decode(&a); e != nil && err == nil {
		text, _ := os.ReadFile(log.Name())
		err = fmt.Errorf("the lab's daemon exited: %s", text)
	}
	if a.Error != "" {
		err = errors.New(a.Error)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	go func() { _ = cmd.Wait() }() // reap the daemon if we live longer
	if spec.EndWithInput {
		return in, nil
	}
	return nil, in.Close()
}

// Open returns a lab that is up.
func Open(name string) (*Lab, error) {
	if name == "" {
		name = DefaultName
	}
	root, err := runtimeRoot()
	if err != nil {
		return nil, err
	}
	l := &Lab{Name: name, dir: filepath.Join(root, name)}
	if l.client, err = dialDaemon(filepath.Join(l.dir, socketName)); err != nil {
		return nil, fmt.Errorf("no lab %q is up (start one, for example: mpbond-lab up --links 8/10/5)", name)
	}
	a, err := l.client.exchangeWithDaemon(request{Op: "hello"})
	if err != nil {
		return nil, err
	}
	l.info, l.Topology, l.Warnings = *a.Info, a.Info.Topology, a.Info.Warnings
	return l, nil
}

// sendDaemonRequest sends a request to the daemon and returns its response.
func (l *Lab) sendDaemonRequest(r request) (response, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client.exchangeWithDaemon(r)
}

// Command prepares a program to run in a node. The program sees the network and the names of the
// lab; its files, processes and /sys are those of this machine. It starts in the current working
// directory; Cmd.Dir is ignored. The started process is the program itself, so signals and exit
// codes are its own.
func (l *Lab) Command(ctx context.Context, node string, argv ...string) (*exec.Cmd, error) {
	fd, ok := l.info.NS[node]
	if !ok {
		return nil, fmt.Errorf("no node %q (there are %v)", node, l.Topology.Nodes())
	}
	if len(argv) == 0 {
		return nil, fmt.Errorf("no command to run in %s", node)
	}
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	pid := strconv.Itoa(l.info.PID)
	args := []string{"--target", pid, "--mount", "--net=/proc/" + pid + "/fd/" + strconv.Itoa(fd)}
	if l.info.User && os.Geteuid() != 0 {
		args = append(args, "--user", "--preserve-credentials")
	}
	// nsenter leaves the working directory at the new root.
	args = append(args, "--", "sh", "-c", `cd "$0" 2>/dev/null || cd /; exec "$@"`, dir)
	return exec.CommandContext(ctx, "nsenter", append(args, argv...)...), nil
}

// Set changes a link at once, in both directions if dir is empty. Properties are written as for
// "mpbond-lab set": rate=1Mbit/s, delay=40ms, outage=on.
func (l *Lab) Set(link, dir string, props ...string) error {
	_, err := l.sendDaemonRequest(request{Op: "set", Link: link, Dir: dir, Props: props})
	return err
}

// Start makes the current time the time zero of all schedules, outages and traces. It begins a new
// period of lateness.
func (l *Lab) Start() error { return l.StartAt(0) }

// StartAt is like Start, but that far into all schedules, outages and traces: links are as they
// would be by then.
func (l *Lab) StartAt(into time.Duration) error {
	_, err := l.sendDaemonRequest(request{Op: "start", Into: into})
	return err
}

// Rewind resets every link and stops the schedules.
func (l *Lab) Rewind() error { _, err := l.sendDaemonRequest(request{Op: "rewind"}); return err }

// Stats returns all counters. With reset it begins a new period of lateness and delays.
func (l *Lab) Stats(reset bool) (Stats, error) {
	a, err := l.sendDaemonRequest(request{Op: "stats", Reset: reset})
	if err != nil {
		return Stats{}, err
	}
	return *a.Stats, nil
}

// WaitDrained waits until no packet is on any link.
func (l *Lab) WaitDrained(ctx context.Context) error {
	err := pollUntil(ctx, 20*time.Millisecond, func() (bool, error) {
		s, err := l.Stats(false)
		return err == nil && !slices.ContainsFunc(s.Links, func(ls LinkStats) bool {
			return ls.Lines[Uplink].Queued+ls.Lines[Downlink].Queued > 0 ||
				ls.Lines[Uplink].InFlight+ls.Lines[Downlink].InFlight > 0
		}), err
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("packets stay on the links: %w", err)
	}
	return err
}

// downTimeout is how long the guard may take to clean up.
const downTimeout = 10 * time.Second

// Down ends every process in the lab and removes the network. It returns when nothing is left.
func (l *Lab) Down() error {
	if _, err := l.sendDaemonRequest(request{Op: "down"}); err != nil {
		return err
	}
	if l.daemonStdin != nil {
		l.daemonStdin.Close()
	}
	return waitRemoved(l.dir)
}

// waitRemoved waits until the guard has removed dir.
func waitRemoved(dir string) error {
	for end := time.Now().Add(downTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	return fmt.Errorf("the lab's guard did not clean up: %s is still there", dir)
}

// List returns the names of this user's labs that are up.
func List() ([]string, error) {
	root, err := runtimeRoot()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if c, err := dialDaemon(filepath.Join(root, e.Name(), socketName)); err == nil {
			c.conn.Close()
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// runtimeRoot returns the directory of the labs' sockets: below XDG_RUNTIME_DIR; /run for root;
// else a directory of the user below the temporary one.
func runtimeRoot() (string, error) {
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		return filepath.Join(d, "mpbond-lab"), nil
	}
	uid := os.Geteuid()
	if uid == 0 {
		return "/run/mpbond-lab", nil
	}
	d := filepath.Join(os.TempDir(), "mpbond-lab-"+strconv.Itoa(uid))
	if err := os.MkdirAll(d, 0o700); err != nil {
		return "", err
	}
	st, err := os.Lstat(d)
	if err != nil {
		return "", err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || !st.IsDir() || int(sys.Uid) != uid {
		return "", fmt.Errorf("%s is not a directory of yours: set XDG_RUNTIME_DIR", d)
	}
	return d, nil
}

// lockRuntimeRoot locks the runtime directory, which it makes if necessary. It waits until no other
// lab is brought up and the directory is not being removed.
func lockRuntimeRoot() (unlock func(), err error) {
	root, err := runtimeRoot()
	if err != nil {
		return nil, err
	}
	for {
		if err := os.MkdirAll(root, 0o755); err != nil {
			return nil, fmt.Errorf("lab's runtime directory: %w", err)
		}
		f, err := os.Open(root)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("lab's runtime directory: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return nil, fmt.Errorf("lock %s: %w", root, err)
		}
		locked, err1 := f.Stat()
		now, err2 := os.Stat(root)
		if err1 == nil && err2 == nil && os.SameFile(locked, now) {
			return func() { f.Close() }, nil
		}
		f.Close() // it was removed meanwhile
	}
}

// removeEmptyRoot removes the runtime directory after the last lab, unless another lab is brought
// up.
func removeEmptyRoot(root string) {
	f, err := os.Open(root)
	if err != nil {
		return
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		_ = os.Remove(root) // fails while there are labs
	}
}

// claimLabDir makes the runtime directory of a new lab. It first removes one that a dead lab left
// behind.
func claimLabDir(name string) (string, error) {
	root, err := runtimeRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, name)
	if err := os.Mkdir(dir, 0o700); err == nil {
		return dir, nil
	} else if !errors.Is(err, os.ErrExist) {
		return "", err
	}
	if c, err := dialDaemon(filepath.Join(dir, socketName)); err == nil {
		c.conn.Close()
		return "", fmt.Errorf("a lab %q is up already (mpbond-lab down --name %s, or give another --name)", name, name)
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.Mkdir(dir, 0o700)
}
