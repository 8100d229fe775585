package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// homes are directories of mpbond's devices, a node each, with their keys and whom they
// trust.
type homes struct {
	b            *Bench
	root, mpbond string
	keys         map[string]string // public ones, by node
}

// newHomes makes homes below root, with a key in each; mpbond is the program.
func (b *Bench) newHomes(ctx context.Context, mpbond, root string, nodes []string) (*homes, error) {
	h := &homes{b, root, mpbond, map[string]string{}}
	for _, node := range nodes {
		if err := os.MkdirAll(h.dir(node), 0o700); err != nil {
			return nil, err
		}
		out, err := h.run(ctx, node, "keygen", "--json")
		if err != nil {
			return nil, err
		}
		var key struct {
			Key string `json:"key"`
		}
		if err := json.Unmarshal([]byte(lastLine(out)), &key); err != nil {
			return nil, fmt.Errorf("mpbond keygen in %s: %w: %s", node, err, out)
		}
		h.keys[node] = key.Key
	}
	return h, nil
}

func (h *homes) dir(node string) string { return filepath.Join(h.root, node) }

func (h *homes) env(node string) string { return "MPBOND_HOME=" + h.dir(node) }

// run runs mpbond in a node.
func (h *homes) run(ctx context.Context, node string, args ...string) (string, error) {
	return h.b.Run(ctx, node, append([]string{"env", h.env(node), h.mpbond}, args...)...)
}

// trust has a node trust a peer, in a role, and by further options of `mpbond trust add`.
func (h *homes) trust(ctx context.Context, node, peer, role string, options ...string) error {
	_, err := h.run(ctx, node, append([]string{"trust", "add", peer, "--role", role, "--key", h.keys[peer]}, options...)...)
	return err
}
