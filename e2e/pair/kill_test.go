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

// maxFiles is the most files a home may hold. It shows that kills leave no files behind.
const maxFiles = 12

// minCountedLife is the shortest life of a process that must count more than a kill may lose.
const minCountedLife = 1200 * time.Millisecond

// The longest times after which a process, and a command that a person runs, is killed.
const (
	longestLife    = 400 * time.Millisecond
	longestCommand = 80 * time.Millisecond // most commands have ended by then
)

// killTest is a network whose processes are killed as by a power failure. Meanwhile they and users'
// commands write state that must survive.
type killTest struct {
	*network
	roles     map[string][]string // arguments of the mpbond in each node
	procs     map[string]*rig.Process
	meters    map[string]*meter
	longLives bool // processes live long enough to check what they count

	mu             sync.Mutex
	rng            *rand.Rand
	made, missed   int // changes that succeeded, that failed
	killedCommands int
	ids            map[string]string // ID of each home, which never changes
}

func (k *killTest) randomDuration(d time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Duration(k.rng.Int64N(int64(d)))
}

// pickKillDelay returns when to kill a command, within d. Half of the time it returns 0, never:
// otherwise a busy machine would complete no change.
func (k *killTest) pickKillDelay(d time.Duration) time.Duration {
	if k.randomDuration(2) == 0 {
		return 0
	}
	return k.randomDuration(d)
}

// countChange counts a change as made, or as missed if its command or request returned an error.
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

// clientFor returns an API client for the mpbond that runs in a node.
func (k *killTest) clientFor(node string) *client.Client { return k.NewClient(node, k.roles[node][0]) }

// readTrust returns the trust file of a home, as names by ID. The file must be readable after any
// kill, and the home's own key must never change.
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
		k.Errorf("the trust file of %s cannot be read: %v: %s", home, err, &errs)
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if was := k.ids[home]; was != "" && was != r.Self.ID {
		k.Errorf("the ID of %s changed from %s to %s", home, was, r.Self.ID)
	}
	k.ids[home] = r.Self.ID
	m := map[string]string{}
	for _, d := range r.Devices {
		m[d.ID] = d.Name
	}
	return m
}

// runAndKill runs mpbond in a node and kills it after a time; 0 means never.
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

// renameRepeatedly renames a device of a node until ctx ends, in turn by command and by the API of
// the mpbond that runs there. Each rename must apply completely or not at all.
func (k *killTest) renameRepeatedly(ctx context.Context, node, id string) {
	c := k.clientFor(node)
	for i := 0; ctx.Err() == nil; i++ {
		before := k.readTrust(node, node)[id]
		if before == "" {
			k.Errorf("%s no longer knows %s", node, id)
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
			k.Errorf("%s renamed %q to %q with error %v: the name is now %q", node, before, want, err, got)
		}
	}
}

// pairRepeatedly pairs a device with the server and revokes it there until ctx ends.
func (k *killTest) pairRepeatedly(ctx context.Context, id string) {
	for ctx.Err() == nil {
		var inv api.Invitation
		out, err := k.runAndKill(0, "server", "server", "accept", "--json", "--wait=false")
		if err != nil || json.Unmarshal([]byte(out), &inv) != nil {
			continue // the server is down now
		}
		_, err = k.runAndKill(k.pickKillDelay(4*longestCommand), "primary", "tablet",
			"pair", "--name", "tablet", "--as", "server", inv.Code)
		k.countChange(err)
		name, known := k.readTrust("server", "server")[id]
		if err == nil && !known {
			k.Errorf("the tablet was paired, but the server does not know it")
		}
		k.readTrust("primary", "tablet")
		if !known {
			continue
		}
		if _, err := k.runAndKill(k.pickKillDelay(longestCommand), "server", "server", "revoke", name); err == nil {
			if _, known = k.readTrust("server", "server")[id]; known {
				k.Errorf("the tablet was revoked, but the server still knows it")
			}
		}
	}
}

// downloadRepeatedly has an app download bytes until ctx ends. Downloads may fail, but must never
// yield wrong bytes.
func (k *killTest) downloadRepeatedly(ctx context.Context) {
	const size = 4 * mb
	want, _ := io.ReadAll(rig.Noise(size))
	for ctx.Err() == nil {
		url := fmt.Sprintf("http://web/%d", size)
		out, err := k.runAndKill(0, "primary", "primary", "run", "--", "curl", "-sSf", "--max-time", "5", url)
		if err == nil && out != string(want) || !strings.HasPrefix(string(want), out) {
			k.Errorf("%d bytes arrived, or wrong ones: %v", len(out), err)
		}
	}
}

// createKeysRepeatedly creates keys until ctx ends and kills some of the commands.
func (k *killTest) createKeysRepeatedly(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		home := fmt.Sprintf("new%d", i)
		var made struct{ ID string }
		out, err := k.runAndKill(k.pickKillDelay(longestCommand/2), "primary", home, "keygen", "--json")
		if err == nil && json.Unmarshal([]byte(out), &made) != nil {
			k.Errorf("keygen printed no key: %s", out)
		}
		k.mu.Lock()
		k.ids[home] = made.ID // if empty, readTrust sets the ID of the key it finds or makes
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

// runRound kills each process once, while commands and transfers go on.
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
	rig.Eventually(k, func() error { // the restarted processes work again
		if n := k.changeCount() - made; n < 3 {
			return fmt.Errorf("only %d changes were made", n)
		}
		return nil
	})
	cancel()
	writers.Wait()
}

// TestKill kills every process at random times. Every state file must stay readable and hold the
// value before or after the write under way. The devices must find each other again, and apps must
// receive the right bytes.
func TestKill(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	k := &killTest{network: newNetwork(t, "40/40/-"), procs: map[string]*rig.Process{}, meters: map[string]*meter{},
		longLives: *kills > 10, ids: map[string]string{}, rng: rand.New(rand.NewPCG(*killSeed, 0)),
		roles: map[string][]string{
			"server":  {"server", "--allow", "10.77.0.0/16", "--allow", "fd77::/16"},
			"helper1": {"helper", "--name", "phone"},
			"primary": {"primary", "--name", "laptop"},
		}}
	k.startNode("server")
	k.startNode("helper1")
	k.Must("primary", k.Mpbond, "pair", "--name", "laptop",
		k.procs["server"].AwaitCode(), k.procs["helper1"].AwaitCode())
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
		for node, others := range map[string][]string{
			"server":  {"primary"},
			"helper1": {"primary"},
			"primary": {"server", "helper1"},
		} {
			known := k.readTrust(node, node)
			for _, other := range others {
				if known[k.ids[other]] == "" {
					t.Errorf("%s no longer knows %s: %v", node, other, known)
				}
			}
		}
		for node, m := range k.meters {
			k.checkUsage(node, m)
		}
		if bad, err := filepath.Glob(filepath.Join(k.Dir, "*", "*.bad")); err != nil || len(bad) > 0 {
			t.Errorf("damaged files were put aside: %v, %v", bad, err)
		}
		if t.Failed() {
			t.Fatalf("after %d rounds with seed %d", i+1, *killSeed)
		}
	}
	for node := range k.roles {
		if files, err := os.ReadDir(filepath.Join(k.Dir, node)); err != nil || len(files) > maxFiles {
			t.Errorf("too many files in the home of %s: %v, %v", node, files, err)
		}
	}
	for node, m := range k.meters {
		if m.lostTime > time.Second {
			t.Errorf("%s lost the count of the last %v before a kill, want at most 1 s", node, m.lostTime)
		}
		t.Logf("%s: links carried %d bytes, mpbond counted %d; lost at most the count of the last %v before a kill",
			node, m.passed, m.reported, m.lostTime)
	}
	t.Logf("killed each process %d times and %d commands; %d changes were made, %d failed",
		*kills, k.killedCommands, k.made, k.missed)
}
