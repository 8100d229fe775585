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

// debianPackages of Debian that hold the programs which runs need.
var debianPackages = map[string]string{
	"curl": "curl", "nginx": "nginx-light", "nft": "nftables", "ip": "iproute2", "mptcpize": "mptcpize", "sysctl": "procps", "nsenter": "util-linux",
}

// checkRequirements says all that this machine lacks for runs of the schemes.
func checkRequirements(schemes []string) error {
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
			hints = append(hints, "leave the scheme mptcp out, or use a kernel of a common distribution")
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
	if len(install) > 0 {
		hints = append(hints, "on Debian or Ubuntu: sudo apt-get install --no-install-recommends "+strings.Join(install, " "))
	}
	if unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK) != nil {
		lacks = append(lacks, "/dev/net/tun, to be read and written by this user")
		hints = append(hints, "as root: chmod 666 /dev/net/tun (or modprobe tun, if it is not there)")
	}
	if os.Geteuid() != 0 && !canMakeUserNamespaces() {
		lacks = append(lacks, "user namespaces for ordinary users")
		hints = append(hints, "run this as root, or allow them: sysctl user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 (those which exist)")
	}
	if len(lacks) == 0 {
		return nil
	}
	return fault.New(fault.Unsupported, fmt.Errorf("this machine lacks what the lab needs: %s", strings.Join(lacks, "; ")), strings.Join(hints, "; "))
}

// addSbinToPath lets an ordinary user find ip, nft and nginx, which Debian keeps out
// of their PATH.
func addSbinToPath() {
	path := os.Getenv("PATH")
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if !slices.Contains(strings.Split(path, ":"), dir) {
			path += ":" + dir
		}
	}
	_ = os.Setenv("PATH", path) // fails for no text of ours
}

// canMakeUserNamespaces tells whether this user may make them, and be root inside.
func canMakeUserNamespaces() bool {
	err := exec.Command("unshare", "--user", "--map-root-user", "--net", "true").Run()
	return err == nil || errors.Is(err, exec.ErrNotFound) // then Up will see
}
