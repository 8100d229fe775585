// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"mpbond/base/fault"
)

// RedirectConfig configures a Redirect.
type RedirectConfig struct {
	// Port is where an Edge serves redirected connections on the loopback addresses. At least one
	// of 127.0.0.1 and [::1] must accept.
	Port uint16
	// User, if not nil, selects the app by its user ID, for machines without usable cgroups. No
	// other program may run as that user.
	User *uint32
	// Label is matched by policies. It becomes part of the name of the app's cgroup.
	Label string
	// Direct lists destinations that are not redirected, in addition to this machine and link-local
	// addresses.
	Direct []netip.Prefix
	// Log gets a line if a part does not work. nil discards.
	Log *slog.Logger
}

// Redirect makes the kernel send the TCP connections, datagrams and DNS queries of one app, and of
// all processes that it starts, to an Edge in the same network namespace. It consists of
//
//	a cgroup     mpbond-run-PID[-LABEL] below that of this process; the app starts in it
//	a table      inet mpbond_run_PID, owned by a netlink socket: the kernel
//	             removes it when this process ends for any reason (Linux 5.12)
//	a forwarder  of DNS queries, see dnsForwarder
//	a proxy      of other datagrams, see datagramProxy, with policy routes that
//	             lead to it, see divert
//
// The next Redirect removes cgroup and routes of a killed process.
type Redirect struct {
	group *cgroup // nil if the app is selected by user
	nft   *nftables.Conn
	dns   *dnsForwarder // nil if DNS is not redirected
	// Both are nil if datagrams are not redirected.
	datagrams *datagramProxy
	divert    *divert
}

// dnsMark marks the forwarder's own connections, which are redirected although they are not the
// app's.
const dnsMark = 0x6d70646e

// edgeProbeTimeout bounds the wait for a listener on the loopback address.
const edgeProbeTimeout = 5 * time.Second

// NewRedirect prepares the redirection of an app that is started later. Errors carry a hint for the
// user.
func NewRedirect(cfg RedirectConfig) (_ *Redirect, err error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	families, err := probeEdgeFamilies(cfg.Port)
	if err != nil {
		return nil, err
	}
	r := &Redirect{}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if cfg.User == nil {
		if r.group, err = newCgroup(cfg.Label); err != nil {
			return nil, cgroupFault(err)
		}
	}
	if r.dns, err = newDNSForwarder(cfg.Log); err != nil {
		cfg.Log.Warn("the app's DNS queries stay direct", "err", err)
		r.dns = nil
	}
	// The socket owns the table, so it must stay open.
	if r.nft, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(createOwnedTable)); err != nil {
		return nil, explainNftError(err)
	}
	if err := r.loadRedirectRules(cfg, families); err != nil {
		return nil, explainNftError(err)
	}
	if err := r.redirectDatagrams(cfg); err != nil {
		cfg.Log.Warn("the app's datagrams stay direct, but for DNS", "err", err)
	}
	return r, nil
}

// probeEdgeFamilies returns the address families on which an Edge listens.
func probeEdgeFamilies(port uint16) ([]byte, error) {
	var families []byte
	var last error
	for family, host := range map[byte]string{unix.NFPROTO_IPV4: "127.0.0.1", unix.NFPROTO_IPV6: "::1"} {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(int(port))), edgeProbeTimeout)
		switch {
		case err == nil:
			c.Close()
		case errors.Is(err, syscall.ECONNRESET):
			// It has accepted, and then reset the connection because it was not redirected.
		default:
			last = err
			continue
		}
		families = append(families, family)
	}
	if families == nil {
		return nil, fault.New(fault.NotRunning,
			fmt.Errorf("no primary takes redirected connections on port %d: %w", port, last),
			"start `mpbond primary` on this machine and, if there are several, in this network namespace")
	}
	slices.Sort(families)
	return families, nil
}

// proxyHint is the alternative where redirection does not work.
const proxyHint = "use the SOCKS5 or HTTP proxy of the primary"

func cgroupFault(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fault.New(fault.Permission, err, "run it as root, or without root "+proxyHint)
	}
	return fault.New(fault.Unsupported, err,
		"cgroups (version 2) are unusable here: start the app as a user of its own with --user, or "+proxyHint)
}

// explainNftError explains an error of loading rules to the user.
func explainNftError(err error) error {
	err = fmt.Errorf("loading redirect rules: %w", err)
	if errors.Is(err, os.ErrPermission) {
		return fault.New(fault.Permission, err, "run it as root, or without root "+proxyHint)
	}
	return fault.New(fault.Unsupported, err,
		"this requires Linux 5.12 with nf_tables and its modules nft_redir, nft_socket and nft_chain_nat; "+
			"without them "+proxyHint)
}

// Apply makes the process started with attr the app: it starts in the cgroup, so that even its
// first packet is redirected. With User, the caller must start it as that user.
func (r *Redirect) Apply(attr *syscall.SysProcAttr) {
	if r.group != nil {
		attr.UseCgroupFD = true
		attr.CgroupFD = int(r.group.dir.Fd())
	}
}

// Close removes the rules, then the cgroup. Remaining processes of the app then connect directly.
// Redirected connections continue.
func (r *Redirect) Close() error {
	var errs []error
	if r.nft != nil {
		errs = append(errs, r.nft.CloseLasting()) // also removes the table
	}
	errs = append(errs, r.releaseDatagrams())
	if r.dns != nil {
		errs = append(errs, r.dns.Close())
	}
	if r.group != nil {
		errs = append(errs, r.group.removeCgroup())
	}
	return errors.Join(errs...)
}

// tableOwnerFlag is NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h.
const tableOwnerFlag = 0x2

func nftTableName() string { return "mpbond_run_" + strconv.Itoa(os.Getpid()) }

// createOwnedTable creates the table on c, which then owns it. The nftables library cannot set the
// owner flag, nor add a table that exists, but it can use the table.
func createOwnedTable(c *netlink.Conn) error {
	attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: append([]byte(nftTableName()), 0)},
		{Type: unix.NFTA_TABLE_FLAGS, Data: binary.BigEndian.AppendUint32(nil, tableOwnerFlag)},
	})
	if err != nil {
		return err
	}
	// nfgenmsg: family, version, and the resource in network byte order, which in a batch is the
	// subsystem.
	batch := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
	table := append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, attrs...)
	message := func(kind int, flags netlink.HeaderFlags, data []byte) netlink.Message {
		return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind),
			Flags: netlink.Request | flags}, Data: data}
	}
	if _, err := c.SendMessages([]netlink.Message{
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, batch),
		message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE,
			netlink.Create|netlink.Excl|netlink.Acknowledge, table),
		message(unix.NFNL_MSG_BATCH_END, 0, batch),
	}); err != nil {
		return err
	}
	_, err = c.Receive() // the acknowledgement
	return err
}

// loadRedirectRules fills the table, in one transaction:
//
//	table inet mpbond_run_PID {
//	  flags owner
//	  chain output {
//	    type nat hook output priority dstnat
//	    meta mark DNSMARK meta l4proto tcp redirect to :PORT
//	    socket cgroupv2 level L CGROUP jump app        (or: meta skuid USER)
//	  }
//	  chain app {
//	    oifname "lo" return                            this machine, all its addresses
//	    ip daddr 169.254.0.0/16 return                 and other direct prefixes
//	    meta nfproto ipv4 meta l4proto tcp redirect to :PORT
//	    meta nfproto ipv4 udp dport 53 redirect to :DNSPORT
//	  }
//	}
//
// The match must be positive, because packets without a socket match neither a condition nor its
// negation.
func (r *Redirect) loadRedirectRules(cfg RedirectConfig, families []byte) error {
	t := &nftables.Table{Name: nftTableName(), Family: nftables.TableFamilyINet}
	app := r.nft.AddChain(&nftables.Chain{Name: "app", Table: t})
	accept := nftables.ChainPolicyAccept
	output := r.nft.AddChain(&nftables.Chain{
		Name: "output", Table: t, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest, Policy: &accept,
	})
	rule := func(c *nftables.Chain, parts ...[]expr.Any) {
		r.nft.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: slices.Concat(parts...)})
	}
	if r.dns != nil {
		rule(output, matchMetaValue(expr.MetaKeyMARK, binaryutil.NativeEndian.PutUint32(dnsMark)),
			matchL4Proto(unix.IPPROTO_TCP), redirectExpr(cfg.Port))
	}
	rule(output, r.matchAppPackets(cfg.User), verdictExpr(expr.VerdictJump, app.Name))
	returnDirect(cfg, func(parts ...[]expr.Any) { rule(app, parts...) })
	for _, f := range families {
		nfproto := matchMetaValue(expr.MetaKeyNFPROTO, []byte{f})
		rule(app, nfproto, matchL4Proto(unix.IPPROTO_TCP), redirectExpr(cfg.Port))
		if r.dns != nil {
			rule(app, nfproto, matchL4Proto(unix.IPPROTO_UDP), matchDestPort(dnsPort), redirectExpr(r.dns.port))
		}
	}
	return r.nft.Flush()
}

// returnDirect adds rules that exclude direct destinations.
func returnDirect(cfg RedirectConfig, rule func(...[]expr.Any)) {
	rule(matchMetaValue(expr.MetaKeyOIFNAME, append([]byte("lo"), make([]byte, unix.IFNAMSIZ-2)...)),
		verdictExpr(expr.VerdictReturn, ""))
	for _, p := range append([]netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("fe80::/10")}, cfg.Direct...) {
		rule(matchDestAddr(p), verdictExpr(expr.VerdictReturn, ""))
	}
}

// matchAppPackets returns the expressions that match packets of a user or, if user is nil, of the
// control group.
func (r *Redirect) matchAppPackets(user *uint32) []expr.Any {
	if user != nil {
		return matchMetaValue(expr.MetaKeySKUID, binaryutil.NativeEndian.PutUint32(*user))
	}
	return []expr.Any{
		&expr.Socket{Key: expr.SocketKeyCgroupv2, Level: uint32(r.group.depth), Register: 1},
		matchEqual(binaryutil.NativeEndian.PutUint64(r.group.id)),
	}
}

// Expressions as nft(8) compiles them from the rules above.

func matchEqual(data []byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}
}

func matchMetaValue(key expr.MetaKey, value []byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, matchEqual(value)}
}

func matchL4Proto(p byte) []expr.Any { return matchMetaValue(expr.MetaKeyL4PROTO, []byte{p}) }

func matchDestPort(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		matchEqual(binary.BigEndian.AppendUint16(nil, port)),
	}
}

// matchDestAddr returns the expressions that match packets to addresses of a prefix.
func matchDestAddr(p netip.Prefix) []expr.Any {
	family, offset := byte(unix.NFPROTO_IPV4), uint32(16)
	if p.Addr().Is6() {
		family, offset = unix.NFPROTO_IPV6, 24
	}
	addr := p.Masked().Addr().AsSlice()
	n := uint32(len(addr))
	return append(matchMetaValue(expr.MetaKeyNFPROTO, []byte{family}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: n},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: n, Mask: net.CIDRMask(p.Bits(), len(addr)*8),
			Xor: make([]byte, n)},
		matchEqual(addr))
}

func verdictExpr(kind expr.VerdictKind, chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: kind, Chain: chain}}
}

func redirectExpr(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binary.BigEndian.AppendUint16(nil, port)},
		&expr.Redir{RegisterProtoMin: 1},
	}
}
