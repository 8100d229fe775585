// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"mpbond/base/identity"
	"mpbond/base/natstest"
	"mpbond/base/porttest"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
	"mpbond/control/fleet/natsstore"
	"mpbond/link/pairing"
)

// packagedEngine is an engine whose nodes have the files of packaging/fleet. Only names and paths are those of the
// test: host names become ports of this machine.
type packagedEngine struct {
	testing.TB
	dir   string
	addrs map[string]string // by the address in a file, as n1.example.org:4222
	keys  map[string]string // the public keys of users, by name
	seeds map[string]string
	nodes []*natstest.Node // in the order of their start
}

func newPackagedEngine(t testing.TB) *packagedEngine {
	natstest.Program(t) // skips without one
	e := &packagedEngine{TB: t, dir: t.TempDir(), addrs: map[string]string{}, keys: map[string]string{},
		seeds: map[string]string{}}
	natstest.WriteCertificates(t, e.dir, []string{"127.0.0.1"}, nil)
	for _, user := range []string{"op", "eu1", "us1", "leaf"} {
		e.addUser(user)
	}
	return e
}

// addUser makes a user of the engine, as `nk -gen user -pubout` does.
func (e *packagedEngine) addUser(name string) {
	e.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		e.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		e.Fatal(err)
	}
	if e.keys[name], err = pair.PublicKey(); err != nil {
		e.Fatal(err)
	}
	e.seeds[name] = string(seed)
	e.write(name+".creds", e.seeds[name]+"\n"+e.keys[name]+"\n")
}

func (e *packagedEngine) write(name, text string) {
	e.Helper()
	if err := os.WriteFile(filepath.Join(e.dir, name), []byte(text), 0o600); err != nil {
		e.Fatal(err)
	}
}

// read returns a file of the repository.
func (e *packagedEngine) read(name string) string {
	e.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		e.Fatal(err)
	}
	return string(text)
}

// between returns the part of a text from a mark to the next occurrence of an end, both included.
func (e *packagedEngine) between(text, begin, end string) string {
	e.Helper()
	_, text, found := strings.Cut(text, begin)
	if text, _, ends := strings.Cut(text, end); found && ends {
		return begin + text + end
	}
	e.Fatalf("no text from %q to %q", begin, end)
	return ""
}

// replace replaces what must be in a text once.
func (e *packagedEngine) replace(text, old, by string) string {
	e.Helper()
	if strings.Count(text, old) != 1 {
		e.Fatalf("%q is %d times in:\n%s", old, strings.Count(text, old), text)
	}
	return strings.Replace(text, old, by, 1)
}

// writeUsers writes users.conf of the nodes: with the operator, the servers, and what else is given.
func (e *packagedEngine) writeUsers(more string, servers ...string) {
	e.Helper()
	const serverKey = "UAREPLACE_BY_THE_KEY_OF_EU1"
	text := e.replace(e.read("packaging/fleet/users.conf"), "UAREPLACE_BY_THE_KEY_OF_THE_OPERATOR", e.keys["op"])
	entry := e.between(text, "      {\n        nkey: \""+serverKey, "\n      }\n")
	for _, name := range servers {
		more += strings.ReplaceAll(strings.ReplaceAll(entry, serverKey, e.keys[name]), "eu1", name)
	}
	e.write("users.conf", e.replace(text, entry, more))
}

var (
	ownName     = regexp.MustCompile(`(?m)^( *(server_name|(client_)?advertise): "?)[nl]1`)
	exampleAddr = regexp.MustCompile(`\w+\.example\.org:\d+`)
	ownAddr     = regexp.MustCompile(`0\.0\.0\.0(:\d+)`)
)

// localize makes a configuration of a node that of a node on this machine.
func (e *packagedEngine) localize(node, text string) string {
	text = ownName.ReplaceAllString(text, "${1}"+node)
	text = ownAddr.ReplaceAllString(text, node+".example.org${1}")
	text = exampleAddr.ReplaceAllStringFunc(text, e.addr)
	text = strings.ReplaceAll(text, "/var/lib/nats", filepath.Join(e.dir, node))
	return strings.ReplaceAll(text, "/etc/nats", e.dir)
}

// addr returns the address on this machine for one in a file.
func (e *packagedEngine) addr(example string) string {
	if e.addrs[example] == "" {
		e.addrs[example] = porttest.FreeAddress(e)
	}
	return e.addrs[example]
}

// url returns where clients reach a node.
func (e *packagedEngine) url(node string) string { return "tls://" + e.addr(node+".example.org:4222") }

// start starts a node with a configuration for /etc/nats/nats.conf.
func (e *packagedEngine) start(node, text string) {
	e.Helper()
	e.nodes = append(e.nodes, natstest.StartNode(e, filepath.Join(e.dir, node), e.url(node), e.localize(node, text)))
}

// open connects a user to a node.
func (e *packagedEngine) open(user, url string) (b *breakable) {
	e.Helper()
	cfg := natsstore.Config{URLs: url, Creds: filepath.Join(e.dir, user+".creds"), CA: filepath.Join(e.dir, "ca.pem"),
		User: user, Log: slog.New(slog.DiscardHandler)}
	if user == "op" {
		cfg.User = ""
	}
	waittest.UntilSuccess(e, func() error { // the engine has no leader yet, or is not connected yet
		s, err := natsstore.Open(e.Context(), cfg)
		if err == nil {
			e.Cleanup(s.Close)
			b = &breakable{Store: s}
		}
		return err
	})
	return b
}

// startByGateway starts three nodes in one region, and a node in another one that a gateway joins with them.
func (e *packagedEngine) startByGateway() {
	e.Helper()
	e.writeUsers("", "eu1", "us1")
	conf, gateway := e.read("packaging/fleet/nats.conf"), e.read("packaging/fleet/gateway.conf")
	for _, node := range []string{"n1", "n2", "n3", "u1"} {
		text, join := conf, gateway
		if node == "u1" {
			text = e.replace(text, e.between(text, "\njetstream {", "\n"), "\n")
			text = e.replace(text, "name: acme\n", "name: acme-us\n")
			text = e.replace(text, e.between(text, "routes: [", "]"), `routes: [ "nats://u1.example.org:6222" ]`)
			join = e.replace(join, "  name: acme\n  advertise", "  name: acme-us\n  advertise")
		}
		e.write(node+"-gateway.conf", e.localize(node, join))
		e.start(node, text+"include \""+node+"-gateway.conf\"\n")
	}
}

// startByLeaf starts three nodes in one region, and a leaf node in another one.
func (e *packagedEngine) startByLeaf() {
	e.Helper()
	leaf, page := e.read("packaging/fleet/leaf.conf"), e.read("docs/howto/fleet.md")
	const serverKey = "UAREPLACE_BY_THE_KEY_OF_US1"
	entry := e.between(leaf, "      {\n        nkey: \""+serverKey, "\n      }\n")
	e.writeUsers(strings.ReplaceAll(entry, serverKey, e.keys["leaf"]), "eu1")
	conf := e.read("packaging/fleet/nats.conf")
	conf = e.replace(conf, e.between(conf, "\njetstream {", "\n"), "\n"+e.between(page, "        jetstream {", "\n\n"))
	for _, node := range []string{"n1", "n2", "n3"} {
		e.start(node, conf)
	}
	leaf = e.replace(leaf, "SUREPLACE_BY_THE_SEED_OF_THE_LEAF_NODE", e.seeds["leaf"])
	e.start("l1", e.replace(leaf, serverKey, e.keys["us1"]))
}

// newWorldAt makes a fleet with the servers eu1 and us1 on an engine that its operator reaches by a store.
func newWorldAt(t *testing.T, store *breakable) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir(), key: newKey(t), store: store}
	w.Operator = fleet.NewOperator(store, w.key)
	w.must(w.Init(t.Context(), "acme"))
	for _, name := range []string{"eu1", "us1"} {
		w.must(w.AddServer(t.Context(), fleet.Server{Name: name, Region: name[:2], Key: newKey(t).Public(),
			Addresses: []string{name + ".example.org:7600"}}))
	}
	return w
}

// TestRegions checks that a server that reaches only a node of another region takes part in a fleet as others do, with
// the files of packaging and the rights that they give it, also after the nodes of the first region were lost.
func TestRegions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start          func(*packagedEngine)
		node, operator string // that us1 and the operator use
	}{
		"gateway": {(*packagedEngine).startByGateway, "u1", "u1"},
		"leaf":    {(*packagedEngine).startByLeaf, "l1", "n1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newPackagedEngine(t)
			c.start(e)
			w := newWorldAt(t, e.open("op", e.url(c.operator)))
			eu := w.joinBy(e.open("eu1", e.url("n1")), "eu1", nil)
			usage := newCarried()
			us := w.joinBy(e.open("us1", e.url(c.node)), "us1", func(c *fleet.MemberConfig) { c.Usage = usage.take })
			w.checkServer(us, eu, usage)
			e.checkStreams()
			for _, n := range e.nodes[:3] {
				n.Kill()
			}
			waittest.Until(t, "the server says that the engine is lost", func() bool { return us.Status().EngineLost })
			for _, n := range e.nodes[:3] {
				n.Restart(t)
			}
			waittest.Until(t, "the engine is back", func() bool { return !us.Status().EngineLost })
			var code pairing.Code
			waittest.UntilSuccess(t, func() (err error) { // each bucket gets a leader of its own
				code, _, err = w.Invite(t.Context(), fleet.InviteTerms{Life: time.Hour})
				return err
			})
			w.timePairing(us, device{newKey(t)}, code)
		})
	}
}

// checkStreams checks that all streams are in the first region, on three nodes, wherever the operator made them.
func (e *packagedEngine) checkStreams() {
	e.Helper()
	user, err := nats.NkeyOptionFromSeed(filepath.Join(e.dir, "op.creds"))
	if err != nil {
		e.Fatal(err)
	}
	conn, err := nats.Connect(e.url("n1"), user, nats.RootCAs(filepath.Join(e.dir, "ca.pem")))
	if err != nil {
		e.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		e.Fatal(err)
	}
	streams := js.ListStreams(e.Context())
	n := 0
	for s := range streams.Info() {
		if n++; s.Cluster.Name != "acme" || s.Config.Replicas != 3 {
			e.Errorf("%s is in %s, with %d replicas", s.Config.Name, s.Cluster.Name, s.Config.Replicas)
		}
	}
	if want := len(fleet.Buckets()) + 1; n != want || streams.Err() != nil {
		e.Errorf("%d streams, want %d: %v", n, want, streams.Err())
	}
}

// carried passes counts to a member, as the server does for what it carries.
type carried struct{ list chan fleet.DeviceUsage }

func newCarried() *carried { return &carried{make(chan fleet.DeviceUsage, 2000)} }

// take returns what was carried since the last call.
func (c *carried) take() (list []fleet.DeviceUsage) {
	for {
		select {
		case u := <-c.list:
			list = append(list, u)
		default:
			return list
		}
	}
}

// checkServer checks that a server, far away, does all that a server does in a fleet with another one.
func (w *world) checkServer(far, near *member, usage *carried) {
	w.Helper()
	w.awaitReady(far)
	w.awaitReady(near)
	d, code := device{newKey(w)}, w.invite(fleet.InviteTerms{})
	waittest.UntilSuccess(w, func() error { // a replica may learn of the code a moment later
		_, err := far.Registration(w.Context(), code.ID())
		return err
	})
	if _, err := d.enroll(w.Context(), far, code); err != nil {
		w.Fatal(err)
	}
	w.awaitKnown(near, d, true)
	if _, err := (device{newKey(w)}).enroll(w.Context(), near, code); err == nil {
		w.Error("a code was used twice")
	}
	usage.list <- fleet.DeviceUsage{Device: d.ID().String(), Day: time.Now().Format(time.DateOnly),
		Month: fleet.Volume{Down: 5}, All: fleet.Volume{Down: 5}}
	waittest.UntilSuccess(w, func() error {
		rows, err := fleet.ReadUsage(w.Context(), w.store)
		want := fleet.UsageRow{Device: d.ID().String(), Server: "us1", Month: time.Now().Format("2006-01"),
			InMonth: fleet.Volume{Down: 5}, All: fleet.Volume{Down: 5}}
		if err == nil && !slices.Contains(rows, want) {
			err = errors.New("the fleet does not count what us1 has carried")
		}
		return err
	})
	waittest.UntilSuccess(w, func() error {
		v, err := fleet.ReadStatus(w.Context(), w.store)
		if err != nil {
			return err
		}
		for _, s := range v.Servers {
			if s.State == nil {
				return fmt.Errorf("server %s is silent", s.Name)
			}
		}
		return nil
	})
	_, behind, err := w.Revoke(w.Context(), d.Public(), time.Minute)
	if err != nil || len(behind) > 0 {
		w.Errorf("a revocation is not confirmed by %q: %v", behind, err)
	}
	for _, m := range []*member{far, near} {
		if m.Allowed(identity.RolePrimary)(d.Public()) {
			w.Error("a revoked device is served")
		}
	}
	kinds := map[string]bool{}
	waittest.Until(w, "the events are there", func() bool {
		w.must(w.store.Events(w.Context(), time.Time{}, false, func(e fleet.Event) { kinds[e.Kind] = true }))
		return kinds["paired"] && kinds["revoked"]
	})
}
