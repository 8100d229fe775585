// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
)

// View is what an engine holds of a fleet.
type View struct {
	Name    string
	Key     identity.PublicKey
	Expires time.Time // of the list of servers; zero: there is no valid one
	Problem error     // of the list, of a clock, or of the engine's room; nil: all is well
	Servers []ServerView
}

// ServerView is a server that is on the list, runs, or both.
type ServerView struct {
	Server
	IsListed bool
	State    *ServerState // nil: it does not run
}

// ReadStatus reads the fleet and its servers.
func ReadStatus(ctx context.Context, s Store) (v View, err error) {
	f, err := readFleet(ctx, s)
	if err != nil {
		return v, err
	}
	v.Name, v.Key = f.Name, f.Key
	list, err := readList(ctx, s, f.Key)
	if err != nil {
		v.Problem = err
	}
	v.Expires = list.Expires
	for _, one := range list.Servers {
		v.Servers = append(v.Servers, ServerView{Server: one, IsListed: true})
	}
	states, err := readStates(ctx, s)
	if err != nil {
		return v, err
	}
	for _, st := range states {
		if v.Problem == nil && st.clockOffset(time.Now()).Abs() > clockError/2+ServerLife {
			v.Problem = clockFault(st, time.Now())
		}
		i := slices.IndexFunc(v.Servers, func(x ServerView) bool { return x.Name == st.Name })
		if i < 0 {
			v.Servers = append(v.Servers, ServerView{Server: st.Server})
			i = len(v.Servers) - 1
		}
		v.Servers[i].State = &st
	}
	if v.Problem == nil {
		v.Problem = s.CheckRoom(ctx)
	}
	slices.SortFunc(v.Servers, func(a, b ServerView) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Name, b.Name))
	})
	return v, nil
}

// readStates returns the states of the servers that run.
func readStates(ctx context.Context, s Store) (list []ServerState, err error) {
	records, err := List(ctx, s, Servers)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		var st ServerState
		if json.Unmarshal(r.Value, &st) == nil && st.Name == r.Key {
			list = append(list, st)
		}
	}
	return list, nil
}

// readList returns the list of servers on an engine.
func readList(ctx context.Context, s Store, key identity.PublicKey) (l ServerList, err error) {
	r, err := s.Get(ctx, Orders, listKey)
	if err != nil {
		return l, err
	}
	var signed Signed
	if err := json.Unmarshal(r.Value, &signed); err != nil {
		return l, fault.New(fault.Integrity, err, "")
	}
	return OpenList(key, signed, time.Now())
}

// ReadDevices returns the devices of a fleet by name, and how many records are damaged.
func ReadDevices(ctx context.Context, s Store) (list []Device, damaged int, err error) {
	f, err := readFleet(ctx, s)
	if err != nil {
		return nil, 0, err
	}
	records, err := List(ctx, s, Devices)
	if err != nil {
		return nil, 0, err
	}
	for _, r := range records {
		if strings.HasPrefix(r.Key, beatPrefix) {
			continue
		}
		var rec deviceRecord
		if json.Unmarshal(r.Value, &rec) != nil || rec.Key.String() != r.Key {
			damaged++
			continue
		}
		d, err := openDevice(f.Key, rec)
		if err != nil {
			damaged++
			continue
		}
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return list, damaged, nil
}

// UsageRow is what a server has carried for a device.
type UsageRow struct {
	Device, Server string // ID and name
	Month          string // like "2026-11"
	InMonth, All   Volume
}

// ReadUsage returns what all servers have carried, by device and server.
func ReadUsage(ctx context.Context, s Store) (list []UsageRow, err error) {
	records, err := List(ctx, s, UsageCounts)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		var u usageRecord
		if json.Unmarshal(r.Value, &u) == nil && r.Key == u.Device+"."+u.Server {
			list = append(list, UsageRow{u.Device, u.Server, u.Month, u.InMonth, u.All})
		}
	}
	slices.SortFunc(list, func(a, b UsageRow) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Server, b.Server))
	})
	return list, nil
}
