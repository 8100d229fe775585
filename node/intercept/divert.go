// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// divert makes the kernel pass marked packets to sockets of this machine, whatever their
// destination. For each address family it adds
//
//	ip rule fwmark NUMBER lookup NUMBER
//	ip route local default dev lo table NUMBER
//
// where NUMBER is diversionMark | PID. The kernel keeps them when the process is killed. No packets
// get this mark then, and the next divert removes them.
type divert struct{ number uint32 }

// diversionMark is the upper part of mark and table number, the letter m. A PID has at most 22 bits
// (proc(5)).
const (
	diversionMark     = 0x6d000000
	diversionPriority = 90 // before the main table and the table of a TUN device
)

// installDiversion installs the rule and the routes of this process. It removes those of killed
// processes first.
func installDiversion() (d *divert, err error) {
	_, _ = removeStaleDiversions() // stale ones have no effect
	d = &divert{diversionMark | uint32(os.Getpid())}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		route := &netlink.Route{LinkIndex: lo.Attrs().Index, Table: int(d.number), Type: unix.RTN_LOCAL,
			Scope: unix.RT_SCOPE_HOST, Family: family, Dst: allAddresses(family)}
		err := netlink.RouteReplace(route)
		if err == nil {
			err = netlink.RuleAdd(d.newDiversionRule(family))
		}
		if err != nil && family == unix.AF_INET {
			return nil, fmt.Errorf("routing the app's datagrams: %w", err)
		}
		// Without IPv6 there is nothing to divert.
	}
	return d, nil
}

func allAddresses(family int) *net.IPNet {
	n := net.IPv4len
	if family == unix.AF_INET6 {
		n = net.IPv6len
	}
	return &net.IPNet{IP: make(net.IP, n), Mask: make(net.IPMask, n)}
}

func (d *divert) newDiversionRule(family int) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Mark, r.Table, r.Priority = family, d.number, int(d.number), diversionPriority
	return r
}

// Close removes the rules and routes.
func (d *divert) Close() error {
	var errs []error
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, err := range []error{
			netlink.RuleDel(d.newDiversionRule(family)),
			netlink.RouteDel(&netlink.Route{Table: int(d.number), Type: unix.RTN_LOCAL,
				Scope: unix.RT_SCOPE_HOST, Family: family, Dst: allAddresses(family)}),
		} {
			if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ESRCH) &&
				!errors.Is(err, unix.EAFNOSUPPORT) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// removeStaleDiversions removes what killed processes have left, and returns the numbers.
func removeStaleDiversions() (removed []uint32, err error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := netlink.RuleList(family)
		if err != nil {
			continue // the family is not supported
		}
		for _, r := range rules {
			n := uint32(r.Table)
			if r.Priority != diversionPriority || r.Mark != n || n&0xff000000 != diversionMark ||
				processExists(int(n&0xffffff)) {
				continue
			}
			if err := (&divert{n}).Close(); err != nil {
				return removed, fmt.Errorf("removing the routing rule of a killed mpbond run: %w", err)
			}
			removed = append(removed, n)
		}
	}
	return removed, nil
}

// redirectDatagrams sends the app's datagrams over the bond. On failure it changes nothing.
func (r *Redirect) redirectDatagrams(cfg RedirectConfig) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, r.releaseDatagrams())
		}
	}()
	if r.datagrams, err = newDatagramProxy(cfg.Port, cfg.Log); err != nil {
		return err
	}
	control, relay, err := r.datagrams.openAssociation(r.datagrams.ctx) // checks that the primary carries datagrams
	if err != nil {
		return err
	}
	control.Close()
	relay.Close()
	if r.divert, err = installDiversion(); err != nil {
		return err
	}
	return r.loadDatagramRules(cfg)
}

// releaseDatagrams undoes redirectDatagrams, except the nftables rules.
func (r *Redirect) releaseDatagrams() error {
	var errs []error
	if r.divert != nil {
		errs = append(errs, r.divert.Close())
	}
	if r.datagrams != nil {
		errs = append(errs, r.datagrams.Close())
	}
	r.divert, r.datagrams = nil, nil
	return errors.Join(errs...)
}

// loadDatagramRules adds to the table, in one transaction:
//
//	chain mark {
//	  type route hook output priority mangle
//	  socket cgroupv2 level L CGROUP meta l4proto udp jump datagrams
//	}
//	chain datagrams {
//	  … return, as in chain app
//	  udp dport 53 return                             if they are forwarded
//	  meta mark set NUMBER
//	}
//	chain divert {
//	  type filter hook prerouting priority mangle
//	  meta mark NUMBER meta nfproto ipv4 meta l4proto udp tproxy ip to 127.0.0.1:PORT
//	}
//
// The mark re-routes a packet to this machine, where the second hook gets it.
func (r *Redirect) loadDatagramRules(cfg RedirectConfig) error {
	t := &nftables.Table{Name: nftTableName(), Family: nftables.TableFamilyINet}
	accept := nftables.ChainPolicyAccept
	app := r.nft.AddChain(&nftables.Chain{Name: "datagrams", Table: t})
	mark := r.nft.AddChain(&nftables.Chain{
		Name: "mark", Table: t, Type: nftables.ChainTypeRoute,
		Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityMangle, Policy: &accept,
	})
	divert := r.nft.AddChain(&nftables.Chain{
		Name: "divert", Table: t, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle, Policy: &accept,
	})
	rule := func(c *nftables.Chain, parts ...[]expr.Any) {
		r.nft.AddRule(&nftables.Rule{Table: t, Chain: c, Exprs: slices.Concat(parts...)})
	}
	number := binaryutil.NativeEndian.PutUint32(r.divert.number)
	rule(mark, r.matchAppPackets(cfg.User), matchL4Proto(unix.IPPROTO_UDP), verdictExpr(expr.VerdictJump, app.Name))
	returnDirect(cfg, func(parts ...[]expr.Any) { rule(app, parts...) })
	if r.dns != nil {
		rule(app, matchDestPort(dnsPort), verdictExpr(expr.VerdictReturn, ""))
	}
	rule(app, []expr.Any{&expr.Immediate{Register: 1, Data: number}, &expr.Meta{Key: expr.MetaKeyMARK,
		SourceRegister: true, Register: 1}})
	port := binary.BigEndian.AppendUint16(nil, r.datagrams.listenPort())
	for _, to := range []struct {
		family byte
		addr   net.IP
	}{{unix.NFPROTO_IPV4, net.IP{127, 0, 0, 1}}, {unix.NFPROTO_IPV6, net.IPv6loopback}}[:len(r.datagrams.conns)] {
		rule(divert, matchMetaValue(expr.MetaKeyMARK, number), matchMetaValue(expr.MetaKeyNFPROTO, []byte{to.family}),
			matchL4Proto(unix.IPPROTO_UDP), []expr.Any{
				&expr.Immediate{Register: 1, Data: to.addr},
				&expr.Immediate{Register: 2, Data: port},
				&expr.TProxy{Family: to.family, TableFamily: byte(nftables.TableFamilyINet), RegAddr: 1, RegPort: 2},
			})
	}
	return r.nft.Flush()
}
