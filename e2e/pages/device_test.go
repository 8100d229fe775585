// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pages

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"mpbond/base/waittest"
	"mpbond/e2e/rig"
)

// The user who types the commands on a device. Commands with sudo run as root.
const (
	userName   = "alice"
	userID     = "20000"
	userHome   = "/home/" + userName
	runtimeDir = "/run/user/" + userID
)

// device is a host with a file system of its own: what its programs write is gone with it. Below
// the repository, /etc, /usr and /var it has the files of this machine.
type device struct {
	*scene
	node     string // of the lab, or clone
	holder   *rig.Process
	services map[string]*service // those that run, by name of their kind
}

// deviceScript makes the file system of a device, in namespaces of its own for mounts and names.
const deviceScript = `set -e
mount --make-rprivate /
hosts=$(cat /etc/hosts) resolv=$(cat /etc/resolv.conf)
mount -t tmpfs -o mode=755 pages /mnt
cd /mnt
mkdir repo programs files gocache gomodcache up work
touch test
mount --bind "$REPO" repo
mount --bind "$PROGRAMS" programs
mount --bind "$FILES" files
mount --bind "$TEST" test
mount --bind "$GOCACHE" gocache
mount --bind "$GOMODCACHE" gomodcache
for d in /home /root /run /tmp; do mount -t tmpfs -o mode=755 pages $d; done
chmod 1777 /tmp
cover() { mkdir up/$1 work/$1; mount -t overlay -o "lowerdir=$2,upperdir=/mnt/up/$1,workdir=/mnt/work/$1" pages "$3"; }
for d in etc usr var; do cover $d /$d /$d; done
mkdir -p "$REPO"
cover repo /mnt/repo "$REPO"
rm -rf "$REPO/bin"
printf '%s\n' "$hosts" "$HOSTS" >/etc/hosts
printf '%s\n' "$resolv" >/etc/resolv.conf
cat /mnt/files/cert >>/etc/ssl/certs/ca-certificates.crt
echo "$USER:x:$USERID:$USERID::/home/$USER:/bin/bash" >>/etc/passwd
echo "$USER:x:$USERID:" >>/etc/group
install -d -m 700 -o $USERID -g $USERID /home/$USER /run/user/$USERID
cd /usr/local/bin
ln -sf /mnt/programs/* .
stub() { printf '#!/bin/sh\n%s\n' "$2" >$1.new; chmod 755 $1.new; mv $1.new $1; }
` + stubs + `
echo "$NAME" >/proc/sys/kernel/hostname
echo "the device is ready"
exec cat
`

// stubs makes programs for those that need another machine, a desktop or rights that a test has
// not. sudo is for commands that already run as root. curl also fails if the server refuses. jq
// prints at once, as on a terminal.
const stubs = `
stub sudo 'as=root
while :; do case $1 in -u) as=$2; shift 2 ;; *=*) export "$1"; shift ;; *) break ;; esac; done
unset XDG_RUNTIME_DIR
[ $as != root ] || HOME=/root USER=root exec "$@"
HOME=/home/$as USER=$as exec setpriv --reuid=$as --regid=$as --clear-groups "$@"'
stub curl 'exec /usr/bin/curl --fail-with-body -sS "$@"'
for p in firefox ssh rsync; do stub $p 'exec curl -o /dev/null https://example.org/'; done
stub jq 'exec /usr/bin/jq --unbuffered "$@"'
stub mpv 'curl -o /dev/null $1 && exec curl -o /dev/null ${1%/*}/1.ts'
stub xdg-open 'exec grep -q http://127.0.0.1:7680/ "$1"'
stub iperf3 'echo Server listening on 5201; exec sleep infinity'
`

// newDevice starts a device with the name that prompts show.
func (s *scene) newDevice(node, name string) *device {
	s.Helper()
	d := &device{scene: s, node: node, services: map[string]*service{}}
	argv := []string{"unshare", "--mount", "--uts", "sh", "-c", deviceScript}
	cmd := exec.Command(argv[0], argv[1:]...)
	hosts := ""
	if node != clone {
		cmd = s.Command(node, argv...)
		at, err := s.Lab.Topology.Addr("server", "")
		if err != nil {
			s.Fatal(err)
		}
		hosts = fmt.Sprintf("%s vps.example.org permits.example.org\n%s %s", at, siteAddress, strings.Join(siteNames, " "))
	}
	cmd.Env = append(os.Environ(), s.mark(), "REPO="+s.repository, "PROGRAMS="+filepath.Dir(s.Mpbond), "FILES="+s.files,
		"TEST="+os.Args[0], "GOCACHE="+goEnv("GOCACHE"), "GOMODCACHE="+goEnv("GOMODCACHE"), "HOSTS="+hosts, "NAME="+name,
		"USER="+userName, "USERID="+userID)
	if _, err := cmd.StdinPipe(); err != nil { // the holder ends with this process
		s.Fatal(err)
	}
	d.holder = s.StartCommand(node, cmd)
	s.awaitReady("device "+name, d.holder, func() bool { return strings.Contains(d.holder.Log.String(), "is ready") })
	return d
}

// mark returns a variable that all processes of the scene have.
func (s *scene) mark() string { return "PAGES_SCENE=" + s.Dir }

// goEnv returns a variable of go env.
func goEnv(name string) string {
	out, _ := exec.Command("go", "env", name).Output()
	return strings.TrimSpace(string(out))
}

// command prepares a command line to run on the device, as root if it needs sudo.
func (d *device) command(line string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(d.holder.Cmd.Process.Pid), "--mount", "--uts", "--net", "--"}
	dir := userHome
	env := []string{d.mark(), "HOME=" + userHome, "USER=" + userName, "XDG_RUNTIME_DIR=" + runtimeDir,
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG=C.UTF-8", "REPO=" + d.repository,
		"AWS_ACCESS_KEY_ID=alice", "AWS_SECRET_ACCESS_KEY=secret"}
	switch {
	case d.node == clone:
		dir = d.repository
		env = append(os.Environ(), env[0], "HOME=/root", "USER=root", "XDG_RUNTIME_DIR=/run", "GOCACHE=/mnt/gocache",
			"GOMODCACHE=/mnt/gomodcache", "TMPDIR=/tmp", "PATH=/usr/local/bin:"+os.Getenv("PATH"))
	case !strings.Contains(line, "sudo "):
		enter = append(enter, "setpriv", "--reuid="+userID, "--regid="+userID, "--clear-groups")
	}
	cmd := exec.Command("nsenter", append(enter, "bash", "-o", "pipefail", "-c", `cd "$0" && eval "$1"`, dir, line)...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// run runs a command line to its end and returns what it printed.
func (d *device) run(line string) (string, error) {
	d.Helper()
	p := d.StartCommand(d.node, d.command(line))
	waittest.Until(d.TB, "the end of "+line, func() bool { return hasEnded(p) })
	d.forget(p)
	return p.Log.String(), p.Err
}

// start starts a command line that the test itself needs until the end of the scene.
func (d *device) start(line string) *rig.Process {
	d.Helper()
	p := d.StartCommand(d.node, d.command(line))
	d.forget(p) // killAll ends it
	return p
}

// must is run for a command that the test itself needs.
func (d *device) must(line string) string {
	d.Helper()
	out, err := d.run(line)
	if err != nil {
		d.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// key returns the public key of the device.
func (d *device) key() string {
	d.Helper()
	return strings.TrimSpace(d.must("mpbond keygen --json | jq -r .key"))
}

// write writes a file of the user.
func (d *device) write(path, text string) {
	d.Helper()
	d.must(fmt.Sprintf("mkdir -p $(dirname %[1]s) && cat >%[1]s <<'EOF'\n%[2]s\nEOF", path, text))
}

// killAll ends all processes of the scene.
func (s *scene) killAll() {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if env, _ := os.ReadFile(file); err == nil && bytes.Contains(env, []byte(s.mark()+"\x00")) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
