// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"mpbond/base/fault"
)

// debianPackages are Debian's packages of the programs that runs need.
var debianPackages = map[string]string{
	"curl": "curl", "nginx": "nginx-light", "nft": "nftables", "ip": "iproute2", "mptcpize": "mptcpize",
	"sysctl": "procps", "nsenter": "util-linux",
}

// checkRequirements returns an error that lists all that this machine lacks for runs of the
// schemes, with a browser or without.
func checkRequirements(schemes []string, browser bool) error {
	addSbinToPath()
	want := []string{"nsenter", "curl", "nginx"}
	var lacks, hints []string
	if slices.ContainsFunc(schemes, func(s string) bool { return strings.HasPrefix(s, "single:") }) {
		want = append(want, "ip", "nft", "sysctl")
	}
	if slices.ContainsFunc(schemes, func(s string) bool { return strings.HasPrefix(s, "mptcp") }) {
		want = append(want, "ip", "mptcpize", "nft", "sysctl")
		if _, err := os.Stat("/proc/sys/net/mptcp/enabled"); err != nil {
			lacks = append(lacks, "a kernel with MPTCP (CONFIG_MPTCP)")
			hints = append(hints, "omit the scheme mptcp, or use the kernel of a common distribution")
		}
	}
	var install []string
	slices.Sort(want)
	for _, program := range slices.Compact(want) {
		if _, err := exec.LookPath(program); err != nil {
			lacks = append(lacks, program)
			install = append(install, debianPackages[program])
		}
	}
	if browser {
		if _, err := findBrowser(); err != nil {
			lacks, install = append(lacks, "Chromium"), append(install, "chromium-headless-shell")
		}
	}
	if len(install) > 0 {
		hints = append(hints, "on Debian or Ubuntu: sudo apt-get install --no-install-recommends "+strings.Join(install,
			" "))
	}
	if unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK) != nil {
		lacks = append(lacks, "access to /dev/net/tun for this user")
		hints = append(hints, "as root: chmod 666 /dev/net/tun (or modprobe tun, if it does not exist)")
	}
	if os.Geteuid() != 0 && !canMakeUserNamespaces() {
		lacks = append(lacks, "user namespaces for ordinary users")
		hints = append(hints, "run this as root, or allow them: sysctl user.max_user_namespaces=10000 "+
			"kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 (those that exist)")
	}
	if len(lacks) == 0 {
		return nil
	}
	return fault.New(fault.Unsupported, fmt.Errorf("this machine lacks what the lab needs: %s",
		strings.Join(lacks, "; ")), strings.Join(hints, "; "))
}

// addSbinToPath appends the sbin directories to PATH. Debian keeps ip, nft and nginx there, and an
// ordinary user's PATH omits them.
func addSbinToPath() {
	path := os.Getenv("PATH")
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if !slices.Contains(strings.Split(path, ":"), dir) {
			path += ":" + dir
		}
	}
	_ = os.Setenv("PATH", path) // cannot fail for this text
}

// canMakeUserNamespaces reports whether this user may make user namespaces and be root inside.
func canMakeUserNamespaces() bool {
	err := exec.Command("unshare", "--user", "--map-root-user", "--net", "true").Run()
	return err == nil || errors.Is(err, exec.ErrNotFound) // unknown here: Up finds out
}
