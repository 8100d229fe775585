package lab

import (
	"context"
	"fmt"
)

// bonded is mpbond itself: server, helpers and primary as processes in their
// nodes, and curl through the primary's SOCKS5 proxy.
type bonded struct {
	scheduler string // of server and primary; empty: mpbond's own choice
}

// socksPort is where the primary's proxy listens.
const socksPort = 1080

// Start writes the processes' configuration and starts them.
func (m *bonded) Start(ctx context.Context, b *Bench) error {
	if err := b.StartWeb(ctx); err != nil {
		return err
	}
	processes, err := mpbondProcesses(b, m.scheduler)
	if err != nil {
		return err
	}
	for _, p := range processes {
		if err := b.Spawn(ctx, p.node, p.port, p.env, p.argv...); err != nil {
			return err
		}
	}
	return nil
}

func (*bonded) Client(b *Bench, t Transfer) []string {
	return append(b.Curl(t), "--socks5-hostname", fmt.Sprintf("127.0.0.1:%d", socksPort))
}

// Verify fails if a helper carried nothing of a transfer.
func (*bonded) Verify(context.Context, *Bench) (map[string]any, error) { return nil, nil }

func (*bonded) Stop(context.Context, *Bench) error { return nil }

// mpbondProcess is one process of a bond in the lab.
type mpbondProcess struct {
	node string
	port int // TCP port on which it listens when ready; 0: do not wait
	env  []string
	argv []string
}

// mpbondProcesses writes the keys and configuration of all processes of a
// bond and returns their commands, in the order in which to start them.
func mpbondProcesses(b *Bench, scheduler string) ([]mpbondProcess, error) {
	return nil, fmt.Errorf("the mpbond scheme is not wired up yet")
}
