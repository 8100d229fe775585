// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/e2e/rig"
)

var (
	kills    = flag.Int("kills", 2, "how often TestKill kills each process")
	killSeed = flag.Uint64("killseed", 1, "of the moments at which it does")
)

// maxFiles is how many there may be in a home: none is left over for each kill.
const maxFiles = 12

// minCountedLife is how long a process lives that shall count more than may be lost.
const minCountedLife = 1200 * time.Millisecond

// The longest times until a process is killed, and a command that a person runs.
const (
	longestLife    = 400 * time.Millisecond
	longestCommand = 80 * time.Millisecond // most have ended by then
)

// killTest is a network whose processes are killed, as loss of power would, while
// they and the commands of people write what must survive.
type killTest struct {
	*network
	roles     map[string][]string // the arguments of mpbond that runs in each node
	procs     map[string]*rig.Process
	meters    map[string]*meter
	longLives bool // longLives lives, for what they count

	mu             sync.Mutex
	rng            *rand.Rand
	made, missed   int               // changes
	killedCommands int               // commands that were killed
	ids            map[string]string // of each home, which never change
}

func (k *killTest) randomDuration(d time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Duration(k.rng.Int64N(int64(d)))
}

// pickKillDelay is when a command is killed: not always, or nothing were ever done on
// a busy machine.
func (k *killTest) pickKillDelay(d time.Duration) time.Duration {
	if k.randomDuration(2) == 0 {
		return 0
	}
	return k.randomDuration(d)
}

// countChange counts changes that were made and that were not, as far as who asked for
// them knows.
func (k *killTest) countChange(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		k.made++
	} else {
		k.missed++
	}
}

func (k *killTest) changeCount() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.made
}

// clientFor asks the mpbond that runs in a node.
func (k *killTest) clientFor(node string) *client.Client { return k.Asker(node, k.roles[node][0]) }

// readTrust is what the trust file of a home says: name by ID. It must be readable
// whatever was killed, and the key be the one it always was.
func (k *killTest) readTrust(node, home string) map[string]string {
	k.Helper()
	cmd := k.Command(node, k.Mpbond, "devices", "--json")
	cmd.Env = append(cmd.Env, "MPBOND_HOME="+filepath.Join(k.Dir, home))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var r struct {
		Self    struct{ ID string }
		Devices []struct{ ID, Name string }
	}
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		k.Errorf("what %s knows is lost: %v: %s", home, err, &errs)
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if was := k.ids[home]; was != "" && was != r.Self.ID {
		k.Errorf("%s was %s and is %s", home, was, r.Self.ID)
	}
	k.ids[home] = r.Self.ID
	m := map[string]string{}
	for _, d := range r.Devices {
		m[d.ID] = d.Name
	}
	return m
}

// runAndKill runs mpbond in a node, and kills it after a time; 0 is never.
func (k *killTest) runAndKill(after time.Duration, node, home string, argv ...string) (out string, err error) {
	cmd := k.Command(node, append([]string{k.Mpbond}, argv...)...)
	cmd.Env = append(cmd.Env, "MPBOND_HOME="+filepath.Join(k.Dir, home))
	var b, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &errs
	if err := cmd.Start(); err != nil {
		return "", err
	}
	if after > 0 {
		defer time.AfterFunc(after, func() {
			if cmd.Process.Kill() == nil {
				k.mu.Lock()
				k.killedCommands++
				k.mu.Unlock()
			}
		}).Stop()
	}
	if err = cmd.Wait(); err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, &errs)
	}
	return b.String(), err
}

// renameRepeatedly gives a device of a node other names, by command and by the API of the
// mpbond that runs there, until ctx ends. Each was given, or not.
func (k *killTest) renameRepeatedly(ctx context.Context, node, id string) {
	c := k.clientFor(node)
	for i := 0; ctx.Err() == nil; i++ {
		before := k.readTrust(node, node)[id]
		if before == "" {
			k.Errorf("%s knows %s no longer", node, id)
			return
		}
		want := fmt.Sprintf("%s-%d", strings.TrimRight(before, "-0123456789"), i)
		var err error
		if i%2 == 0 {
			_, err = k.runAndKill(k.pickKillDelay(longestCommand), node, node, "rename", before, want)
		} else {
			err = c.RenameDevice(ctx, before, want)
		}
		k.countChange(err)
		if got := k.readTrust(node, node)[id]; got != want && (err == nil || got != before) {
			k.Errorf("%s renamed %q to %q, which ended with %v: now it is %q", node, before, want, err, got)
		}
	}
}

// pairRepeatedly pairs a device with the server and revokes it there, over and over.
func (k *killTest) pairRepeatedly(ctx context.Context, id string) {
	for ctx.Err() == nil {
		var inv api.Invitation
		out, err := k.runAndKill(0, "server", "server", "accept", "--json", "--wait=false")
		if err != nil || json.Unmarshal([]byte(out), &inv) != nil {
			continue // it is not there now
		}
		_, err = k.runAndKill(k.pickKillDelay(4*longestCommand), "primary", "tablet", "pair", "--name", "tablet", "--as", "server", inv.Code)
		k.countChange(err)
		name, known := k.readTrust("server", "server")[id]
		if err == nil && !known {
			k.Errorf("the tablet was paired, and the server does not know it")
		}
		k.readTrust("primary", "tablet")
		if !known {
			continue
		}
		if _, err := k.runAndKill(k.pickKillDelay(longestCommand), "server", "server", "revoke", name); err == nil {
			if _, known = k.readTrust("server", "server")[id]; known {
				k.Errorf("the tablet was revoked, and the server knows it")
			}
		}
	}
}

// downloadRepeatedly has an app get bytes, which come or not, but are never other ones.
func (k *killTest) downloadRepeatedly(ctx context.Context) {
	const size = 4 * mb
	want, _ := io.ReadAll(rig.Noise(size))
	for ctx.Err() == nil {
		out, err := k.runAndKill(0, "primary", "primary", "run", "--", "curl", "-sSf", "--max-time", "5", fmt.Sprintf("http://web/%d", size))
		if err == nil && out != string(want) || !strings.HasPrefix(string(want), out) {
			k.Errorf("%d bytes came, or other ones: %v", len(out), err)
		}
	}
}

// createKeysRepeatedly makes keys, and has what makes them killed.
func (k *killTest) createKeysRepeatedly(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		home := fmt.Sprintf("new%d", i)
		var made struct{ ID string }
		if out, err := k.runAndKill(k.pickKillDelay(longestCommand/2), "primary", home, "keygen", "--json"); err == nil && json.Unmarshal([]byte(out), &made) != nil {
			k.Errorf("a key was made: %s", out)
		}
		k.mu.Lock()
		k.ids[home] = made.ID // or of what makes one now, if there is none
		k.mu.Unlock()
		for range 2 {
			k.readTrust("primary", home)
		}
		k.mu.Lock()
		delete(k.ids, home)
		k.mu.Unlock()
		if err := os.RemoveAll(filepath.Join(k.Dir, home)); err != nil {
			k.Error(err)
		}
	}
}

// startNode starts the mpbond of a node.
func (k *killTest) startNode(node string) {
	k.Helper()
	k.All = slices.DeleteFunc(k.All, func(p *rig.Process) bool { return p == k.procs[node] })
	k.procs[node] = k.Start(node, append([]string{k.Mpbond}, k.roles[node]...)...)
}

// runRound kills each process once, while all goes on.
func (k *killTest) runRound() {
	k.Helper()
	ids := maps.Clone(k.ids)
	ctx, cancel := context.WithCancel(k.Context())
	var writers, killers sync.WaitGroup
	writers.Go(func() { k.renameRepeatedly(ctx, "primary", ids["helper1"]) })
	writers.Go(func() { k.renameRepeatedly(ctx, "helper1", ids["primary"]) })
	writers.Go(func() { k.pairRepeatedly(ctx, ids["tablet"]) })
	writers.Go(func() { k.downloadRepeatedly(ctx) })
	writers.Go(func() { k.createKeysRepeatedly(ctx) })
	for _, node := range slices.Sorted(maps.Keys(k.roles)) {
		life := k.randomDuration(longestLife)
		if k.longLives {
			life = minCountedLife + 2*life
		}
		killers.Go(func() {
			m, end := k.meters[node], time.After(life)
			tick := time.NewTicker(sampleEvery)
			defer tick.Stop()
			m.samples = nil
			for alive := true; alive; {
				if k.longLives {
					m.samples = append(m.samples, sample{time.Now(), k.passedBytes(node)})
				}
				select {
				case <-tick.C:
				case <-end:
					alive = false
				}
			}
			p := k.procs[node]
			now := time.Now()
			_ = p.Cmd.Process.Kill()
			<-p.Done
			m.samples = append(m.samples, sample{now, k.passedBytes(node)})
		})
	}
	killers.Wait()
	made := k.changeCount()
	for node := range k.roles {
		k.meters[node].restartBytes = k.passedBytes(node)
		k.startNode(node)
	}
	rig.Eventually(k, func() error { // then they are at work again
		if n := k.changeCount() - made; n < 3 {
			return fmt.Errorf("%d changes are made", n)
		}
		return nil
	})
	cancel()
	writers.Wait()
}

// TestKill: whatever is killed, and whenever, every file of state can be read,
// says what was written before or what was being written, and the devices find
// each other again; and what an app gets is right.
func TestKill(t *testing.T) {
	k := &killTest{network: newNetwork(t, "40/40/-"), procs: map[string]*rig.Process{}, meters: map[string]*meter{}, longLives: *kills > 10, ids: map[string]string{}, rng: rand.New(rand.NewPCG(*killSeed, 0)),
		roles: map[string][]string{
			"server":  {"server", "--allow", "10.77.0.0/16", "--allow", "fd77::/16"},
			"helper1": {"helper", "--name", "phone"},
			"primary": {"primary", "--name", "laptop"},
		}}
	k.startNode("server")
	k.startNode("helper1")
	k.Must("primary", k.Mpbond, "pair", "--name", "laptop", k.waitForCode(k.procs["server"]), k.waitForCode(k.procs["helper1"]))
	k.startNode("primary")
	k.readTrust("primary", "tablet")
	for node := range k.roles {
		k.readTrust(node, node)
		k.meters[node] = new(meter)
	}
	k.Await(2)
	for i := range *kills {
		k.runRound()
		k.Await(2)
		k.checkDownload(mb)
		for node, others := range map[string][]string{"server": {"primary"}, "helper1": {"primary"}, "primary": {"server", "helper1"}} {
			known := k.readTrust(node, node)
			for _, other := range others {
				if known[k.ids[other]] == "" {
					t.Errorf("%s knows %s no longer: %v", node, other, known)
				}
			}
		}
		for node, m := range k.meters {
			k.checkUsage(node, m)
		}
		if bad, err := filepath.Glob(filepath.Join(k.Dir, "*", "*.bad")); err != nil || len(bad) > 0 {
			t.Errorf("damaged, and put aside: %v, %v", bad, err)
		}
		if t.Failed() {
			t.Fatalf("after %d rounds with seed %d", i+1, *killSeed)
		}
	}
	for node := range k.roles {
		if files, err := os.ReadDir(filepath.Join(k.Dir, node)); err != nil || len(files) > maxFiles {
			t.Errorf("%s has left %v, %v", node, files, err)
		}
	}
	for node, m := range k.meters {
		if m.lostTime > time.Second {
			t.Errorf("%s has lost what was carried within %v", node, m.lostTime)
		}
		t.Logf("%s: its links carried %d bytes, it says %d; lost was what was carried within %v", node, m.passed, m.reported, m.lostTime)
	}
	t.Logf("%d of each process and %d commands were killed; %d changes were made, %d not", *kills, k.killedCommands, k.made, k.missed)
}
