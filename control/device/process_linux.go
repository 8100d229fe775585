// SPDX-License-Identifier: Apache-2.0

package device

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Process is the program that owns a socket.
type Process struct {
	UID uint32
	// Exe is the path of its executable and PID its number. They are "" and 0 if this process may
	// not see them, as for other users' programs without root.
	Exe string
	PID int
	// Cgroup is the path of its control group (version 2) from the root of the hierarchy, "" if
	// unknown.
	Cgroup string
}

// ProcessFinder finds the programs that own sockets of this machine. The zero value is ready to
// use. Safe for concurrent use.
type ProcessFinder struct {
	mu      sync.Mutex
	recent  []int             // PIDs of recently found processes, the newest first
	cgroups map[uint64]string // paths of control groups, by number
}

// maxRecent bounds the processes that are tried before all others.
const maxRecent = 16

// FindBySocket returns the process that owns the socket of that local and remote address. network
// is "tcp" or "udp". It takes microseconds for a recently found program and milliseconds for
// others.
func (pf *ProcessFinder) FindBySocket(network string, local, remote netip.AddrPort) (Process, error) {
	s, err := querySocket(network, local, remote)
	if err != nil {
		return Process{}, fmt.Errorf("find the process of connection %v: %w", local, err)
	}
	pf.mu.Lock()
	defer pf.mu.Unlock()
	owner := Process{UID: s.uid, PID: pf.findSocketPID(s)}
	if owner.PID > 0 {
		proc := filepath.Join("/proc", strconv.Itoa(owner.PID))
		exe, _ := os.Readlink(filepath.Join(proc, "exe"))
		owner.Exe = strings.TrimSuffix(exe, " (deleted)") // replaced while it runs, for example by an update
		owner.Cgroup = readCgroup(filepath.Join(proc, "cgroup"))
	}
	if owner.Cgroup == "" && s.cgroup != 0 {
		owner.Cgroup = pf.cgroupPath(s.cgroup)
	}
	return owner, nil
}

// FindChild returns the oldest running child of a process, the command of `mpbond run`.
func (pf *ProcessFinder) FindChild(of Process) (Process, error) {
	if of.PID == 0 {
		return Process{}, errors.New("the process is not visible")
	}
	proc := func(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }
	tasks, err := readFileNames(proc(of.PID, "task"))
	if err != nil {
		return Process{}, err
	}
	for _, t := range tasks { // any thread may have started it
		list, _ := os.ReadFile(proc(of.PID, "task/"+t+"/children"))
		for _, f := range strings.Fields(string(list)) {
			pid, _ := strconv.Atoi(f)
			var st syscall.Stat_t
			if err := syscall.Stat(proc(pid, ""), &st); err != nil {
				continue
			}
			exe, _ := os.Readlink(proc(pid, "exe"))
			return Process{UID: st.Uid, Exe: strings.TrimSuffix(exe, " (deleted)"), PID: pid,
				Cgroup: readCgroup(proc(pid, "cgroup"))}, nil
		}
	}
	return Process{}, fmt.Errorf("process %d has no child", of.PID)
}

// socket is the kernel's information about a socket.
type socket struct {
	uid, inode uint32
	cgroup     uint64 // number of its control group, 0 if unknown
}

// Constants of linux/inet_diag.h that x/sys/unix lacks.
const (
	sockDiagByFamily = 20
	inetDiagCgroupID = 21 // since Linux 5.9
	diagRequestLen   = 56
	diagMessageLen   = 72
)

// querySocket asks the kernel about a socket (sock_diag(7)).
func querySocket(network string, local, remote netip.AddrPort) (s socket, err error) {
	protocol := byte(unix.IPPROTO_TCP)
	if network == "udp" {
		protocol = unix.IPPROTO_UDP
	}
	family := byte(unix.AF_INET)
	from, to := local.Addr().Unmap().WithZone(""), remote.Addr().Unmap().WithZone("")
	if from.Is6() {
		family = unix.AF_INET6
	}
	if !from.IsValid() || !to.IsValid() || from.Is6() != to.Is6() {
		return s, fmt.Errorf("%v and %v are not the ends of a connection", local, remote)
	}
	// Fill in struct inet_diag_req_v2: family, protocol, extensions, pad, states, and
	// inet_diag_sockid: ports and addresses in network order, interface, cookie.
	b := make([]byte, diagRequestLen)
	b[0], b[1] = family, protocol
	binary.NativeEndian.PutUint32(b[4:], ^uint32(0))
	binary.BigEndian.PutUint16(b[8:], local.Port())
	binary.BigEndian.PutUint16(b[10:], remote.Port())
	copy(b[12:28], from.AsSlice())
	copy(b[28:44], to.AsSlice())
	for i := 48; i < 56; i++ {
		b[i] = 0xff // INET_DIAG_NOCOOKIE
	}
	c, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, nil)
	if err != nil {
		return s, err
	}
	defer c.Close()
	list, err := c.Execute(netlink.Message{Header: netlink.Header{Type: sockDiagByFamily, Flags: netlink.Request},
		Data: b})
	if err != nil {
		return s, err
	}
	if len(list) != 1 || len(list[0].Data) < diagMessageLen {
		return s, errors.New("the system does not know the socket")
	}
	d := list[0].Data
	s.uid, s.inode = binary.NativeEndian.Uint32(d[64:]), binary.NativeEndian.Uint32(d[68:])
	attrs, err := netlink.NewAttributeDecoder(d[diagMessageLen:])
	if err != nil {
		return s, err
	}
	for attrs.Next() {
		if attrs.Type() == inetDiagCgroupID {
			s.cgroup = attrs.Uint64()
		}
	}
	return s, attrs.Err()
}

// findSocketPID returns the PID of a process that has the socket open, 0 if none is visible.
func (pf *ProcessFinder) findSocketPID(s socket) int {
	if s.inode == 0 {
		return 0 // already closed
	}
	want := "socket:[" + strconv.FormatUint(uint64(s.inode), 10) + "]"
	found := 0
	for _, pid := range pf.recent {
		if hasOpenFile(pid, want) {
			found = pid
			break
		}
	}
	if found == 0 {
		all, _ := os.ReadDir("/proc")
		for _, e := range slices.Backward(all) { // the newest first
			if pid, err := strconv.Atoi(e.Name()); err == nil && !slices.Contains(pf.recent, pid) && hasOpenFile(pid, want) {
				found = pid
				break
			}
		}
	}
	if found > 0 {
		pf.recent = slices.DeleteFunc(pf.recent, func(pid int) bool { return pid == found })
		pf.recent = slices.Insert(pf.recent, 0, found)
		pf.recent = pf.recent[:min(len(pf.recent), maxRecent)]
	}
	return found
}

// hasOpenFile reports whether a process has a file open.
func hasOpenFile(pid int, want string) bool {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	names, err := readFileNames(dir)
	if err != nil {
		return false
	}
	for _, n := range slices.Backward(names) { // new connections have high numbers
		if to, err := os.Readlink(dir + "/" + n); err == nil && to == want {
			return true
		}
	}
	return false
}

// readFileNames returns the names of the files in dir, unsorted.
func readFileNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// readCgroup returns the path in a file such as /proc/PID/cgroup, from its line "0::/path".
func readCgroup(file string) string {
	b, _ := os.ReadFile(file)
	for line := range strings.Lines(string(b)) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return p
		}
	}
	return ""
}

// cgroupPath returns the path of the control group of that number, which is the inode of its
// directory.
func (pf *ProcessFinder) cgroupPath(id uint64) string {
	if p, ok := pf.cgroups[id]; ok {
		return p
	}
	root := cgroupRoot()
	if root == "" {
		return ""
	}
	pf.cgroups = map[uint64]string{}
	_ = filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil //nolint:nilerr // what cannot be seen is left out
		}
		if i, err := e.Info(); err == nil {
			if st, ok := i.Sys().(*syscall.Stat_t); ok {
				pf.cgroups[st.Ino] = path.Join("/", strings.TrimPrefix(name, root))
			}
		}
		return nil
	})
	return pf.cgroups[id]
}

// cgroupRoot returns the mount point of the version 2 hierarchy, "" if there is none. A line of
// mountinfo (proc(5)) is
//
//	36 35 98:0 /root /mount options … - type source options
func cgroupRoot() string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		before, after, _ := strings.Cut(s.Text(), " - ")
		if fields := strings.Fields(before); strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 && fields[3] == "/" {
			return fields[4]
		}
	}
	return ""
}
