package primary

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/control/policy"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// TestGroupsAreReused edits rules at random while connections come and go: as long
// as the open ones are of fewer kinds than there may be, there is room for a new
// one; what is open keeps its group, which means what it did; and no number means
// two things.
func TestGroupsAreReused(t *testing.T) {
	type stream struct {
		c   *endpoint.Conn
		id  wire.GroupID
		key string
	}
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			p := offline(t, time.Minute)
			r := rand.New(rand.NewPCG(seed, 0))
			meant := map[wire.GroupID]string{}
			var open []stream
			refused := 0
			for range 3000 {
				if len(open) > 0 && r.IntN(5) < 2 || len(open) > 4*wire.MaxGroups {
					i := r.IntN(len(open))
					open[i].c.Reset()
					open[i] = open[len(open)-1]
					open = open[:len(open)-1]
					continue
				}
				// A slider that moves: kinds come anew, and some return.
				treat := &policy.Treatment{Devices: []string{fmt.Sprint("phone", r.IntN(20))}, Weight: uint8(1 + r.IntN(100))}
				kinds := map[string]bool{}
				for _, s := range open {
					kinds[s.key] = true
				}
				p.mu.Lock()
				id, err := p.groupOf(treat)
				p.mu.Unlock()
				if err != nil {
					var why wire.Reset
					if !errors.As(err, &why) || why.Code != wire.CodeLimit || len(kinds) < wire.MaxGroups {
						t.Fatalf("%d kinds are open: %v", len(kinds), err)
					}
					refused++
					continue
				}
				if was, ok := meant[id]; ok && was != treat.Key() {
					t.Fatalf("group %d means %s, and meant %s", id, treat.Key(), was)
				}
				meant[id] = treat.Key()
				c, err := p.cur.e.Dial("web:80", wire.Bond, id)
				if err != nil {
					t.Fatal(err)
				}
				open = append(open, stream{c, id, treat.Key()})
				known := map[wire.GroupID]string{}
				for _, g := range p.groups {
					known[g.id] = g.key
				}
				for _, s := range open {
					if known[s.id] != s.key {
						t.Fatalf("a stream of group %d, %s, has %q", s.id, s.key, known[s.id])
					}
				}
			}
			if len(meant) <= 2*wire.MaxGroups || len(p.groups) > wire.MaxGroups || refused == 0 {
				t.Errorf("%d kinds in all, %d refused; %d groups are there", len(meant), refused, len(p.groups))
			}
		})
	}
}
