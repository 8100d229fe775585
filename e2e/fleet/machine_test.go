// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"mpbond/e2e/rig"
)

// machine is a node with a file system of its own: what its programs write is gone with it. It has the files of this
// machine, and a part of systemd: this test starts the services of units.
type machine struct {
	*rig.Network
	node   string
	holder *rig.Process
	units  map[string]*rig.Process // services that run
}

// machineScript makes the file system of a machine.
const machineScript = `set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 machine /mnt
mkdir /mnt/up /mnt/work
for d in etc usr var root; do
	mkdir /mnt/up/$d /mnt/work/$d
	mount -t overlay -o lowerdir=/$d,upperdir=/mnt/up/$d,workdir=/mnt/work/$d machine /$d
done
mount -t tmpfs -o mode=755 machine /run
rm -rf /var/lib/mpbond /var/lib/nats /etc/mpbond /etc/nats /root/.config/mpbond
for f in $PROGRAMS; do ln -sf $f /usr/local/bin/; done
printf '#!/bin/sh\nexec "$@"\n' >/usr/local/bin/sudo.new
chmod 755 /usr/local/bin/sudo.new
mv /usr/local/bin/sudo.new /usr/local/bin/sudo
printf '%s\n' "$HOSTS" >>/etc/hosts
echo "the machine is ready"
exec cat
`

// newMachine starts the machine of a node. hosts are further lines of /etc/hosts, and programs those to install.
func newMachine(n *rig.Network, node, hosts string, programs ...string) *machine {
	n.Helper()
	m := &machine{Network: n, node: node, units: map[string]*rig.Process{}}
	cmd := n.Command(node, "unshare", "--mount", "sh", "-c", machineScript)
	cmd.Env = append(os.Environ(), "HOSTS="+hosts, "PROGRAMS="+strings.Join(programs, " "))
	if _, err := cmd.StdinPipe(); err != nil { // the holder ends with this process
		n.Fatal(err)
	}
	m.holder = n.StartCommand(node, cmd)
	rig.Eventually(n, func() error {
		if !strings.Contains(m.holder.Log.String(), "is ready") {
			return fmt.Errorf("%s is not ready:\n%s", node, &m.holder.Log)
		}
		return nil
	})
	return m
}

// command prepares a command line of root.
func (m *machine) command(line string) *exec.Cmd {
	m.Helper()
	cmd := m.Command(m.node, "nsenter", "--target", strconv.Itoa(m.holder.Cmd.Process.Pid), "--mount", "--", "bash", "-c",
		"cd /root && "+line)
	cmd.Env = []string{"HOME=/root", "USER=root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG=C.UTF-8"}
	return cmd
}

// run runs a command line to its end, and returns its standard output.
func (m *machine) run(line string) (string, error) {
	m.Helper()
	out, err := m.command(line).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s$ %s: %w: %s", m.node, line, err, exit.Stderr)
	}
	return string(out), err
}

// must is run for a command line that must succeed.
func (m *machine) must(line string) string {
	m.Helper()
	out, err := m.run(line)
	if err != nil {
		m.Fatal(err)
	}
	return out
}

// write writes a file of root.
func (m *machine) write(path, text string, mode string) {
	m.Helper()
	cmd := m.command(fmt.Sprintf("mkdir -p %s && cat >%s && chmod %s %[2]s", filepath.Dir(path), path, mode))
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.Fatalf("%s: %v: %s", path, err, out)
	}
}

// unitFile has the settings of a unit file, the last ones of each name.
type unitFile map[string]string

// readUnit reads a unit and its additions.
func (m *machine) readUnit(name string) unitFile {
	m.Helper()
	u := unitFile{}
	for line := range strings.Lines(m.must(fmt.Sprintf("cat $(ls /etc/systemd/system/%s.service "+
		"/usr/local/lib/systemd/system/%[1]s.service 2>/dev/null) $(ls /etc/systemd/system/%[1]s.service.d/* 2>/dev/null)",
		name))) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			u[key] = value
		}
	}
	return u
}

// startUnit starts the service of a unit: with its user, directories, credentials and variables, and no rights.
func (m *machine) startUnit(name string) {
	m.Helper()
	u := m.readUnit(name)
	user := u["User"]
	if u["DynamicUser"] == "yes" {
		m.must("id " + user + " || useradd --system " + user)
	}
	for setting, parent := range map[string]string{"State": "/var/lib/", "Runtime": "/run/"} {
		if dir := u[setting+"Directory"]; dir != "" {
			m.must(fmt.Sprintf("install -d -m %s -o %s -g %[2]s %s", u[setting+"DirectoryMode"], user, parent+dir))
		}
	}
	if id, file, ok := strings.Cut(u["LoadCredential"], ":"); ok {
		dir := "/run/credentials/" + name + ".service"
		m.must(fmt.Sprintf("mkdir -p /run/credentials && install -d -m 500 -o %s %s", user, dir))
		m.must(fmt.Sprintf("install -m 400 -o %s %s %s/%s", user, file, dir, id))
	}
	withoutRights := fmt.Sprintf("setpriv --reuid=%s --regid=%[1]s --clear-groups --no-new-privs --bounding-set=-all "+
		"--inh-caps=-all", user)
	m.units[name] = m.StartCommand(m.node, m.command(fmt.Sprintf("umask %s; cd /; exec env %s %s %s", u["UMask"],
		u["Environment"], withoutRights, u["ExecStart"])))
}

// restartFailed starts a service again that has failed, if its unit says so: a server may be started before the engine
// has read its user.
func (m *machine) restartFailed(name string) {
	m.Helper()
	p := m.units[name]
	select {
	case <-p.Done:
	default:
		return
	}
	u := m.readUnit(name)
	if u["Restart"] != "on-failure" || strconv.Itoa(p.Cmd.ProcessState.ExitCode()) == u["RestartPreventExitStatus"] {
		m.Fatalf("%s has ended: %v\n%s", name, p.Err, &p.Log)
	}
	m.All = slices.DeleteFunc(m.All, func(other *rig.Process) bool { return other == p })
	m.startUnit(name)
}

// systemctl does what systemctl does with a unit.
func (m *machine) systemctl(args ...string) {
	m.Helper()
	name := args[len(args)-1]
	switch what := strings.Join(args[:len(args)-1], " "); what {
	case "enable --now":
		if m.readUnit(name)["WantedBy"] != "multi-user.target" {
			m.Errorf("%s cannot be enabled", name)
		}
		m.startUnit(name)
	case "reload":
		if got := m.readUnit(name)["ExecReload"]; got != "/bin/kill -HUP $MAINPID" {
			m.Errorf("%s is reloaded by %q", name, got)
		}
		if err := m.units[name].Cmd.Process.Signal(syscall.SIGHUP); err != nil {
			m.Error(err)
		}
	default:
		m.Fatalf("systemctl %s", what)
	}
}
